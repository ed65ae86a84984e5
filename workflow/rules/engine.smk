# The engine, GGUF files of the model, and experiment E5 on them. llama.cpp comes with `make setup-engine`; without it E5 is "not measured" and
# none of this runs. Nothing runs beside what is timed: calibrate_host and run_engine take every core.
#
# build_engine    src/engine, src/core, the installed llama-cpp-python -> build/engine: the compiled module (a minute)
# convert_model   the model's folder -> results/engine/{model}-{type}.gguf
# calibrate_host  -> calibration.parquet, profile.yaml (a file of config/host)
# run_engine      streams under every policy of prereg/e5.yaml -> cells.parquet (perplexity), times.parquet
# compare_engine  the engine's decisions against the emulator's -> e5_agreement
# analyze_e5      -> e5_measures, e5_times, e5_statistics, e5_prediction, e5_orders


rule build_engine:
    input:
        ENGINE_SOURCES,
    output:
        "build/engine/build.json",
    log:
        "results/engine/build_engine.log",
    shell:
        "python -m expertmiss engine build > {log:q} 2>&1"


rule convert_model:
    input:
        model=model_files,
    output:
        "results/engine/{model}-{type}.gguf",
    log:
        "results/engine/{model}-{type}.log",
    params:
        folder=CONFIG["model"]["path"],
    shell:
        "python -m expertmiss engine convert {params.folder:q} --out {output:q} --type {wildcards.type} > {log:q} 2>&1"


rule calibrate_host:
    input:
        gguf=gguf_file(),
        engine="build/engine/build.json",
        tokens="results/{experiment}/tokenize_corpus/{model}/{corpus}/tokens.parquet",
    output:
        table="results/{experiment}/calibrate_host/{model}/{corpus}/calibration.parquet",
        profile="results/{experiment}/calibrate_host/{model}/{corpus}/profile.yaml",
        run="results/{experiment}/calibrate_host/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/calibrate_host/{model}/{corpus}/calibrate_host.log",
    threads: workflow.cores or 1
    params:
        cfg=cfg("calibrate_host"),
        code=code("calibrate_host"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss calibrate_host --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input gguf={input.gguf:q} --input engine={input.engine:q} --input tokens={input.tokens:q} --out {params.out:q} --log {log:q}"


rule run_engine:
    input:
        gguf=gguf_file(),
        engine="build/engine/build.json",
        tokens="results/{experiment}/tokenize_corpus/{model}/{corpus}/tokens.parquet",
        calibration="results/{experiment}/capture_traces/{model}/{corpus}/calibration/trace.safetensors",
        claims="config/claims.yaml",
        rules="prereg/e5.yaml",
    output:
        cells="results/{experiment}/run_engine/{model}/{corpus}/cells.parquet",
        times="results/{experiment}/run_engine/{model}/{corpus}/times.parquet",
        run="results/{experiment}/run_engine/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/run_engine/{model}/{corpus}/run_engine.log",
    threads: workflow.cores or 1
    params:
        locked=locked("claims", "e5"),
        cfg=cfg("run_engine"),
        code=code("run_engine"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss run_engine --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input gguf={input.gguf:q} --input engine={input.engine:q} --input tokens={input.tokens:q} --input calibration={input.calibration:q}"
        " --input claims={input.claims:q} --input rules={input.rules:q} --out {params.out:q} --log {log:q}"


rule compare_engine:
    input:
        gguf=gguf_file(),
        engine="build/engine/build.json",
        tokens="results/{experiment}/tokenize_corpus/{model}/{corpus}/tokens.parquet",
        calibration="results/{experiment}/capture_traces/{model}/{corpus}/calibration/trace.safetensors",
        claims="config/claims.yaml",
        rules="prereg/e5.yaml",
        model=model_files,
    output:
        table="results/{experiment}/compare_engine/{model}/{corpus}/e5_agreement.parquet",
        run="results/{experiment}/compare_engine/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/compare_engine/{model}/{corpus}/compare_engine.log",
    params:
        locked=locked("claims", "e5"),
        cfg=cfg("compare_engine"),
        code=code("compare_engine"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss compare_engine --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input gguf={input.gguf:q} --input engine={input.engine:q} --input tokens={input.tokens:q} --input calibration={input.calibration:q}"
        " --input claims={input.claims:q} --input rules={input.rules:q} --out {params.out:q} --log {log:q}"


rule analyze_e5:
    input:
        cells="results/{experiment}/run_engine/{model}/{corpus}/cells.parquet",
        times="results/{experiment}/run_engine/{model}/{corpus}/times.parquet",
        profile="results/{experiment}/calibrate_host/{model}/{corpus}/profile.yaml",
        trace=f"results/{{experiment}}/capture_traces/{{model}}/{{corpus}}/{CONFIG['e5']['split']}/trace.safetensors",
        calibration="results/{experiment}/capture_traces/{model}/{corpus}/calibration/trace.safetensors",
        claims="config/claims.yaml",
        rules="prereg/e5.yaml",
    output:
        tables=[
            f"results/{{experiment}}/analyze_e5/{{model}}/{{corpus}}/{table}.parquet"
            for table in EXPERIMENT_TABLES["e5"]
        ],
        run="results/{experiment}/analyze_e5/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/analyze_e5/{model}/{corpus}/analyze_e5.log",
    params:
        cfg=cfg("analyze_e5"),
        code=code("analyze_e5"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss analyze_e5 --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input cells={input.cells:q} --input times={input.times:q} --input profile={input.profile:q} --input trace={input.trace:q}"
        " --input calibration={input.calibration:q} --input claims={input.claims:q} --input rules={input.rules:q}"
        " --out {params.out:q} --log {log:q}"
