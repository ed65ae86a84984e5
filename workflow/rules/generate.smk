# The generation test (E7): problems answered under every arm (snakemake generation; page: reports/{experiment}/generation).
#
#   expertmiss prereg lock generation    freeze plan, problems, model, arms; then `snakemake --config experiment=study` answers the registered problems
#
# build_tasks       config, plan                       -> problems.parquet
# generate_answers  problems, calibration trace, model -> answers.jsonl (problem x arm), sandbox.json
# compare_answers   answers, plan, decision            -> e7_* tables; under a lock result.json


rule build_tasks:
    output:
        problems="results/{experiment}/build_tasks/{model}/{corpus}/problems.parquet",
        run="results/{experiment}/build_tasks/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/build_tasks/{model}/{corpus}/build_tasks.log",
    params:
        cfg=cfg("build_tasks"),
        code=code("build_tasks"),
        lock=GENERATION_LOCK,
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss build_tasks --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --value lock={params.lock} --out {params.out:q} --log {log:q}"


rule generate_answers:
    input:
        **ANSWERING_INPUTS,
        problems="results/{experiment}/build_tasks/{model}/{corpus}/problems.parquet",
        calibration="results/{experiment}/capture_traces/{model}/{corpus}/calibration/trace.safetensors",
        model=model_files,
    output:
        answers="results/{experiment}/generate_answers/{model}/{corpus}/answers.jsonl",
        sandbox="results/{experiment}/generate_answers/{model}/{corpus}/sandbox.json",
        run="results/{experiment}/generate_answers/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/generate_answers/{model}/{corpus}/generate_answers.log",
    params:
        cfg=cfg("generate_answers", *ANSWERING_OPTIONS),
        code=code("generate_answers"),
        lock=GENERATION_LOCK,
        more=" ".join(
            f"--input {name}={path}" for name, path in ANSWERING_INPUTS.items()
        ),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss generate_answers --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input problems={input.problems:q} --input calibration={input.calibration:q} {params.more} --value lock={params.lock}"
        " --out {params.out:q} --log {log:q}"


rule compare_answers:
    input:
        answers="results/{experiment}/generate_answers/{model}/{corpus}/answers.jsonl",
        problems="results/{experiment}/build_tasks/{model}/{corpus}/problems.parquet",
        plan=GENERATION_PLAN,
    output:
        tables=[
            f"results/{{experiment}}/compare_answers/{{model}}/{{corpus}}/{table}.parquet"
            for table in E7_TABLES
        ],
        run="results/{experiment}/compare_answers/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/compare_answers/{model}/{corpus}/compare_answers.log",
    params:
        cfg=cfg("compare_answers"),
        code=code("compare_answers"),
        lock=GENERATION_LOCK,
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss compare_answers --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input answers={input.answers:q} --input problems={input.problems:q} --value lock={params.lock} --out {params.out:q} --log {log:q}"
