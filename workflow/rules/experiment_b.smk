# Experiment B: pilot, then (once it is locked) the confirmatory run and its decision. None of it is part of `all`.
#
#   snakemake --config experiment=b --cores all experiment_b_pilot    numbers that the plan needs, from runs on the pilot split
#   expertmiss prereg lock experiment_b                               freeze plan, numbers, documents, model, arms
#   snakemake --config experiment=b --cores all experiment_b          confirmatory run, decision, report
#
# pilot_experiment_b   tokens (pilot; of the confirmatory split names and hashes), calibration trace, plan -> proposal.json, cells, b_* tables
# run_experiment_b     tokens (confirmatory), lock             -> cells
# decide_experiment_b  cells, lock                             -> result.json, b_* tables
# measure_sites        tokens, calibration trace               -> b_site* tables (single substitutions, exploratory; snakemake b_sites)
rule pilot_experiment_b:
    input:
        tokens="results/{experiment}/tokenize_corpus/{model}/{corpus}/tokens.parquet",
        calibration="results/{experiment}/capture_traces/{model}/{corpus}/calibration/trace.safetensors",
        plan="prereg/experiment_b.yaml",
        decision="prereg/decide_experiment_b.py",
        model=model_files,
    output:
        proposal="results/{experiment}/pilot_experiment_b/{model}/{corpus}/proposal.json",
        cells="results/{experiment}/pilot_experiment_b/{model}/{corpus}/cells.parquet",
        tables=[
            f"results/{{experiment}}/pilot_experiment_b/{{model}}/{{corpus}}/{table}.parquet"
            for table in (*B_TABLES, "b_supply")
        ],
        run="results/{experiment}/pilot_experiment_b/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/pilot_experiment_b/{model}/{corpus}/pilot_experiment_b.log",
    params:
        cfg=cfg("pilot_experiment_b"),
        code=code("pilot_experiment_b"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss pilot_experiment_b --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input tokens={input.tokens:q} --input calibration={input.calibration:q} --input plan={input.plan:q}"
        " --input decision={input.decision:q} --out {params.out:q} --log {log:q}"


rule run_experiment_b:
    input:
        tokens="results/{experiment}/tokenize_corpus/{model}/{corpus}/tokens.parquet",
        calibration="results/{experiment}/capture_traces/{model}/{corpus}/calibration/trace.safetensors",
        lock=ancient("prereg/LOCK.json"),
        plan=B_PLAN,
        model=model_files,
    output:
        cells="results/{experiment}/run_experiment_b/{model}/{corpus}/cells.parquet",
        run="results/{experiment}/run_experiment_b/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/run_experiment_b/{model}/{corpus}/run_experiment_b.log",
    params:
        locked=locked("experiment_b"),
        cfg=cfg("run_experiment_b"),
        code=code("run_experiment_b"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss run_experiment_b --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input tokens={input.tokens:q} --input calibration={input.calibration:q} --input lock={input.lock:q} --out {params.out:q} --log {log:q}"


rule decide_experiment_b:
    input:
        cells="results/{experiment}/run_experiment_b/{model}/{corpus}/cells.parquet",
        lock=ancient("prereg/LOCK.json"),
        plan=B_PLAN,
        decision="prereg/decide_experiment_b.py",
    output:
        result="results/{experiment}/decide_experiment_b/{model}/{corpus}/result.json",
        tables=[
            f"results/{{experiment}}/decide_experiment_b/{{model}}/{{corpus}}/{table}.parquet"
            for table in (*B_TABLES, "b_statistics")
        ],
        run="results/{experiment}/decide_experiment_b/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/decide_experiment_b/{model}/{corpus}/decide_experiment_b.log",
    params:
        locked=locked("experiment_b"),
        cfg=cfg("decide_experiment_b"),
        code=code("decide_experiment_b"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss decide_experiment_b --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input cells={input.cells:q} --input lock={input.lock:q} --out {params.out:q} --log {log:q}"


rule measure_sites:
    input:
        tokens="results/{experiment}/tokenize_corpus/{model}/{corpus}/tokens.parquet",
        calibration="results/{experiment}/capture_traces/{model}/{corpus}/calibration/trace.safetensors",
        plan="prereg/experiment_b.yaml",
        model=model_files,
    output:
        tables=[
            f"results/{{experiment}}/measure_sites/{{model}}/{{corpus}}/{table}.parquet"
            for table in B_SITES
        ],
        run="results/{experiment}/measure_sites/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/measure_sites/{model}/{corpus}/measure_sites.log",
    params:
        cfg=cfg("measure_sites"),
        code=code("measure_sites"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss measure_sites --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input tokens={input.tokens:q} --input calibration={input.calibration:q} --input plan={input.plan:q} --out {params.out:q} --log {log:q}"
