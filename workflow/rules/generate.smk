# Generation under policies: problems answered under every arm (snakemake generation).
#
# generate_answers  problems, calibration trace, model -> answers.jsonl (problem x arm), sandbox.json
# compare_answers   answers.jsonl                      -> arms.parquet, paired.parquet


rule generate_answers:
    input:
        problems="results/corpora/{corpus}/problems.parquet",
        calibration="results/{experiment}/capture_traces/{model}/{corpus}/calibration/trace.safetensors",
        model=model_files,
    output:
        answers="results/{experiment}/generate_answers/{model}/{corpus}/answers.jsonl",
        sandbox="results/{experiment}/generate_answers/{model}/{corpus}/sandbox.json",
        run="results/{experiment}/generate_answers/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/generate_answers/{model}/{corpus}/generate_answers.log",
    params:
        cfg=cfg("generate_answers"),
        code=code("generate_answers"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss generate_answers --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input problems={input.problems:q} --input calibration={input.calibration:q} --out {params.out:q} --log {log:q}"


rule compare_answers:
    input:
        answers="results/{experiment}/generate_answers/{model}/{corpus}/answers.jsonl",
    output:
        arms="results/{experiment}/compare_answers/{model}/{corpus}/arms.parquet",
        paired="results/{experiment}/compare_answers/{model}/{corpus}/paired.parquet",
        run="results/{experiment}/compare_answers/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/compare_answers/{model}/{corpus}/compare_answers.log",
    params:
        cfg=cfg("compare_answers"),
        code=code("compare_answers"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss compare_answers --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input answers={input.answers:q} --out {params.out:q} --log {log:q}"
