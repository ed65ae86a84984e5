# MLflow mirrors results/: its database can be deleted and is rebuilt. This rule is its only writer.


rule mlflow_sync:
    input:
        report=f"reports/{EXPERIMENT}/run.json",
        generation=[f"reports/{EXPERIMENT}/generation/run.json"] if TASKS else [],
    output:
        store=update("results/mlflow/mlflow.db"),
        run="results/mlflow/run.json",
    log:
        "results/mlflow/mlflow_sync.log",
    params:
        cfg=cfg("mlflow_sync"),
        code=code("mlflow_sync"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss mlflow_sync --cfg {params.cfg:q} --code {params.code} --input results=results --out {params.out:q} --log {log:q}"
