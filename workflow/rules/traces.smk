# Router traces: what the model's routers answer on each split, and what the traces look like.
#
# capture_traces  tokens.parquet, model -> trace.safetensors
# analyze_traces  trace.safetensors     -> gate_weight.parquet, reuse.parquet
# describe_model  tokens.parquet, problems.parquet, model -> card.json, answers.jsonl, README.md (the model's card; no run under
#                 substitution is looked at)


rule capture_traces:
    input:
        tokens="results/{experiment}/tokenize_corpus/{model}/{corpus}/tokens.parquet",
        model=model_files,
    output:
        trace="results/{experiment}/capture_traces/{model}/{corpus}/{split}/trace.safetensors",
        run="results/{experiment}/capture_traces/{model}/{corpus}/{split}/run.json",
    log:
        "results/{experiment}/capture_traces/{model}/{corpus}/{split}/capture_traces.log",
    threads: CONFIG["capture"]["threads"]
    params:
        cfg=cfg("capture_traces"),
        code=code("capture_traces"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss capture_traces --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input tokens={input.tokens:q} --value split={wildcards.split} --out {params.out:q} --log {log:q}"


rule analyze_traces:
    input:
        trace="results/{experiment}/capture_traces/{model}/{corpus}/{split}/trace.safetensors",
    output:
        weight="results/{experiment}/analyze_traces/{model}/{corpus}/{split}/gate_weight.parquet",
        reuse="results/{experiment}/analyze_traces/{model}/{corpus}/{split}/reuse.parquet",
        run="results/{experiment}/analyze_traces/{model}/{corpus}/{split}/run.json",
    log:
        "results/{experiment}/analyze_traces/{model}/{corpus}/{split}/analyze_traces.log",
    params:
        cfg=cfg("analyze_traces"),
        code=code("analyze_traces"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss analyze_traces --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input trace={input.trace:q} --out {params.out:q} --log {log:q}"


rule describe_model:
    input:
        tokens="results/{experiment}/tokenize_corpus/{model}/{corpus}/tokens.parquet",
        problems="results/corpora/{corpus}/problems.parquet",
        model=model_files,
    output:
        figures="results/{experiment}/describe_model/{model}/{corpus}/card.json",
        answers="results/{experiment}/describe_model/{model}/{corpus}/answers.jsonl",
        card="results/{experiment}/describe_model/{model}/{corpus}/README.md",
        run="results/{experiment}/describe_model/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/describe_model/{model}/{corpus}/describe_model.log",
    threads: CONFIG["card"]["threads"]
    params:
        cfg=cfg("describe_model"),
        code=code("describe_model"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss describe_model --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input tokens={input.tokens:q} --input problems={input.problems:q} --out {params.out:q} --log {log:q}"
