# Experiments E1, E2 and E4: the model under policies, closed loop; every experiment is a target of its own (snakemake e1).
#
# emulate_policies  tokens (E4: topic-shift streams), calibration trace, locked claims, model -> cells, open_loop, nll (E1: split)
# analyze_e1        -> e1_loss, e1_split, e1_capacity, e1_gap, e1_orders
# analyze_e2        -> e2_policies, e2_correlations, e2_inputs, e2_gap, e2_orders
# analyze_e4        -> e4_effects, e4_bins, e4_betas, e4_reswaps, e4_gap, e4_orders
# judge_claims      statistics of all experiments -> claims


def emulated_text(wildcards):
    """Topic-shift streams for E4, documents for the others."""
    stage = "build_topic_shift" if wildcards.study == "e4" else "tokenize_corpus"
    return f"results/{wildcards.experiment}/{stage}/{wildcards.model}/{wildcards.corpus}/tokens.parquet"


rule emulate_policies:
    input:
        tokens=emulated_text,
        calibration="results/{experiment}/capture_traces/{model}/{corpus}/calibration/trace.safetensors",
        claims="config/claims.yaml",
        lock="prereg/LOCK.json",
        model=model_files,
    output:
        cells="results/{experiment}/emulate_policies/{model}/{corpus}/{study}/cells.parquet",
        open_loop="results/{experiment}/emulate_policies/{model}/{corpus}/{study}/open_loop.parquet",
        nll="results/{experiment}/emulate_policies/{model}/{corpus}/{study}/nll.safetensors",
        run="results/{experiment}/emulate_policies/{model}/{corpus}/{study}/run.json",
    log:
        "results/{experiment}/emulate_policies/{model}/{corpus}/{study}/emulate_policies.log",
    params:
        cfg=lambda wildcards: cfg("emulate_policies", wildcards.study),
        code=code("emulate_policies"),
        out=subpath(output.run, parent=True),
    shell:
        "python -m expertmiss emulate_policies --cfg {params.cfg:q} --code {params.code} --experiment {wildcards.experiment}"
        " --input tokens={input.tokens:q} --input calibration={input.calibration:q} --input claims={input.claims:q}"
        " --value study={wildcards.study} --out {params.out:q} --log {log:q}"
