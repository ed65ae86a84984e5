# Policies over traces: warm starts count requests in the calibration trace, the exploratory trace is simulated.
#
# simulate_policies   traces        -> cells.parquet (policy x capacity x seed x document)
# summarize_policies  cells.parquet -> summary.parquet, differences.parquet (paired, against fetch_all), intervals over sources


rule simulate_policies:
    input:
        trace="results/{experiment}/capture_traces/{model}/{corpus}/exploratory/trace.safetensors",
        calibration="results/{experiment}/capture_traces/{model}/{corpus}/calibration/trace.safetensors",
    output:
        cells="results/{experiment}/simulate_policies/{model}/{corpus}/cells.parquet",
        run="results/{experiment}/simulate_policies/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/simulate_policies/{model}/{corpus}/simulate_policies.log",
    threads: 2
    params:
        cfg=cfg("simulate_policies"),
        code=code("simulate_policies"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss simulate_policies --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input trace={input.trace:q} --input calibration={input.calibration:q} --out {params.out:q} --log {log:q}"


rule summarize_policies:
    input:
        cells="results/{experiment}/simulate_policies/{model}/{corpus}/cells.parquet",
    output:
        summary="results/{experiment}/summarize_policies/{model}/{corpus}/summary.parquet",
        differences="results/{experiment}/summarize_policies/{model}/{corpus}/differences.parquet",
        run="results/{experiment}/summarize_policies/{model}/{corpus}/run.json",
    log:
        "results/{experiment}/summarize_policies/{model}/{corpus}/summarize_policies.log",
    params:
        cfg=cfg("summarize_policies"),
        code=code("summarize_policies"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss summarize_policies --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input cells={input.cells:q} --out {params.out:q} --log {log:q}"
