# Which expert misses are worth waiting for?
#
#   snakemake --cores all                                   the quick study: results/default, reports/default
#   snakemake --cores all --config experiment=study         the same at full size
#   snakemake --cores all --config 'overrides=["policy=rule_015", "policy.miss_rule.tau=0.2"]'
#   snakemake --cores all e1                                experiment E1 alone (e2, e4, e5 likewise; e5 needs `make setup-engine`)
#   snakemake --cores all experiment_b_pilot --config experiment=b   Experiment B: pilot; then lock, then experiment_b (docs/experiment_b.md)
#   snakemake --cores all generation                        the generation test alone (docs/generation.md)
#   snakemake --cores all figures                           only the figures
#
# The configuration is composed once, here; config/README.md lists every option. Stages, in order:
# build_corpus, tokenize_corpus, build_topic_shift, capture_traces, analyze_traces, simulate_policies, summarize_policies, emulate_policies,
# analyze_e1, analyze_e2, analyze_e4, calibrate_host, run_engine, compare_engine, analyze_e5, judge_claims, build_tasks, generate_answers,
# compare_answers, make_figures, render_report, mlflow_sync. Each is a rule in workflow/rules and one `python -m expertmiss <stage>`.
from snakemake.utils import min_version

min_version("9.20")


container: "docker://python:3.11-slim-bookworm"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"


wildcard_constraints:
    model=MODEL,
    corpus=CORPUS,
    type="F32|F16|BF16|Q8_0|Q4_0",
    split="train|calibration|pilot|exploratory|confirmatory|generation",
    study="e1|e2|e4",
    page="experiment_b|experiment_b_pilot|b_sites|generation",


localrules:
    all,
    b_sites,
    card,
    e1,
    e2,
    e4,
    e5,
    experiment_b,
    experiment_b_pilot,
    figures,
    generation,
    report,


rule all:
    default_target: True
    input:
        results(),
        "results/mlflow/mlflow.db",


include: "workflow/rules/corpora.smk"
include: "workflow/rules/traces.smk"
include: "workflow/rules/simulate.smk"
include: "workflow/rules/emulate.smk"
include: "workflow/rules/experiment_b.smk"
include: "workflow/rules/generate.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/tracking.smk"
include: "workflow/rules/engine.smk"


rule report:
    input:
        f"reports/{EXPERIMENT}/index.html",


rule card:
    input:
        f"results/{EXPERIMENT}/describe_model/{MODEL}/{CORPUS}/README.md",


rule generation:
    input:
        f"reports/{EXPERIMENT}/generation/index.html",


rule e1:
    input:
        f"results/{EXPERIMENT}/analyze_e1/{MODEL}/{CORPUS}/run.json",


rule e2:
    input:
        f"results/{EXPERIMENT}/analyze_e2/{MODEL}/{CORPUS}/run.json",


rule e4:
    input:
        f"results/{EXPERIMENT}/analyze_e4/{MODEL}/{CORPUS}/run.json",


rule e5:
    input:
        *(
            f"results/{EXPERIMENT}/{stage}/{MODEL}/{CORPUS}/run.json"
            for stage in (*ENGINE_STAGES, "analyze_e5")
        ),


rule experiment_b:
    input:
        f"reports/{EXPERIMENT}/experiment_b/index.html",


rule experiment_b_pilot:
    input:
        f"reports/{EXPERIMENT}/experiment_b_pilot/index.html",


rule b_sites:
    input:
        f"reports/{EXPERIMENT}/b_sites/index.html",


rule figures:
    input:
        f"results/{EXPERIMENT}/make_figures/{MODEL}/{CORPUS}/run.json",


onstart:
    hold_lock()
