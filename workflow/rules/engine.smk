# The engine and GGUF files of the model; not part of the default run, since it needs `make setup-engine`.
#
# build_engine   src/engine, src/core, the installed llama-cpp-python -> build/engine: the compiled module
# convert_model  the model's folder -> results/engine/{model}-{type}.gguf


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
