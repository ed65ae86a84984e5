# Experiments E1, E2 and E4: the model under policies, closed loop; every experiment is a target of its own (snakemake e1).
#
# emulate_policies  tokens (E4: topic-shift streams), calibration trace, locked claims, model -> cells, open_loop, split, nll
# analyze_e1        -> e1_measures, e1_split, e1_choosers, e1_gap, e1_statistics, e1_orders
# analyze_e2        -> e2_measures, e2_statistics, e2_gap, e2_orders
# analyze_e4        -> e4_measures, e4_effects, e4_bins, e4_reswaps, e4_gap, e4_statistics, e4_orders
# judge_claims      statistics of all experiments -> claims


rule emulate_policies:
    input:
        tokens=emulated_text,
        calibration="results/{experiment}/capture_traces/{model}/{corpus}/calibration/trace.safetensors",
        claims="config/claims.yaml",
        model=model_files,
    output:
        cells="results/{experiment}/emulate_policies/{model}/{corpus}/{study}/cells.parquet",
        open_loop="results/{experiment}/emulate_policies/{model}/{corpus}/{study}/open_loop.parquet",
        split="results/{experiment}/emulate_policies/{model}/{corpus}/{study}/split.parquet",
        nll="results/{experiment}/emulate_policies/{model}/{corpus}/{study}/nll.safetensors",
        run="results/{experiment}/emulate_policies/{model}/{corpus}/{study}/run.json",
    log:
        "results/{experiment}/emulate_policies/{model}/{corpus}/{study}/emulate_policies.log",
    params:
        locked=locked("claims"),
        cfg=lambda wildcards: cfg("emulate_policies", wildcards.study),
        code=code("emulate_policies"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss emulate_policies --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input tokens={input.tokens:q} --input calibration={input.calibration:q} --input claims={input.claims:q}"
        " --value study={wildcards.study} --out {params.out:q} --log {log:q}"


rule analyze_e1:
    input:
        cells="results/{experiment}/emulate_policies/{model}/{corpus}/e1/cells.parquet",
        open_loop="results/{experiment}/emulate_policies/{model}/{corpus}/e1/open_loop.parquet",
        split="results/{experiment}/emulate_policies/{model}/{corpus}/e1/split.parquet",
        claims="config/claims.yaml",
    output:
        tables=[
            f"results/{{experiment}}/analyze_e1/{{model}}/{{corpus}}/{table}.parquet"
            for table in EXPERIMENT_TABLES["e1"]
        ],
        run="results/{experiment}/analyze_e1/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/analyze_e1/{model}/{corpus}/analyze_e1.log",
    params:
        cfg=cfg("analyze_e1"),
        code=code("analyze_e1"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss analyze_e1 --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input cells={input.cells:q} --input open_loop={input.open_loop:q} --input split={input.split:q}"
        " --input claims={input.claims:q} --out {params.out:q} --log {log:q}"


rule analyze_e2:
    input:
        cells="results/{experiment}/emulate_policies/{model}/{corpus}/e2/cells.parquet",
        open_loop="results/{experiment}/emulate_policies/{model}/{corpus}/e2/open_loop.parquet",
        claims="config/claims.yaml",
    output:
        tables=[
            f"results/{{experiment}}/analyze_e2/{{model}}/{{corpus}}/{table}.parquet"
            for table in EXPERIMENT_TABLES["e2"]
        ],
        run="results/{experiment}/analyze_e2/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/analyze_e2/{model}/{corpus}/analyze_e2.log",
    params:
        cfg=cfg("analyze_e2"),
        code=code("analyze_e2"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss analyze_e2 --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input cells={input.cells:q} --input open_loop={input.open_loop:q} --input claims={input.claims:q} --out {params.out:q} --log {log:q}"


rule analyze_e4:
    input:
        cells="results/{experiment}/emulate_policies/{model}/{corpus}/e4/cells.parquet",
        open_loop="results/{experiment}/emulate_policies/{model}/{corpus}/e4/open_loop.parquet",
        nll="results/{experiment}/emulate_policies/{model}/{corpus}/e4/nll.safetensors",
        claims="config/claims.yaml",
    output:
        tables=[
            f"results/{{experiment}}/analyze_e4/{{model}}/{{corpus}}/{table}.parquet"
            for table in EXPERIMENT_TABLES["e4"]
        ],
        run="results/{experiment}/analyze_e4/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/analyze_e4/{model}/{corpus}/analyze_e4.log",
    params:
        cfg=cfg("analyze_e4"),
        code=code("analyze_e4"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss analyze_e4 --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input cells={input.cells:q} --input open_loop={input.open_loop:q} --input nll={input.nll:q}"
        " --input claims={input.claims:q} --out {params.out:q} --log {log:q}"


rule judge_claims:
    input:
        statistics=[
            f"results/{{experiment}}/analyze_{study}/{{model}}/{{corpus}}/{study}_statistics.parquet"
            for study in STUDIES
        ],
        claims="config/claims.yaml",
        e5="prereg/e5.yaml",
    output:
        claims="results/{experiment}/judge_claims/{model}/{corpus}/claims.parquet",
        run="results/{experiment}/judge_claims/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/judge_claims/{model}/{corpus}/judge_claims.log",
    params:
        locked=locked("claims", "e5"),
        cfg=cfg("judge_claims"),
        code=code("judge_claims"),
        out=subpath(output.run, parent=True),
        statistics=lambda wildcards, input: named("statistics", input.statistics),
    shell:
        "python -m expertmiss judge_claims --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " {params.statistics} --input claims={input.claims:q} --input e5={input.e5:q} --out {params.out:q} --log {log:q}"
