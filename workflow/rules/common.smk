# Helpers of every rule: the composed configuration, its slices, the content hash of a stage's code, and one lock.
import fcntl
import json
import os
import shlex
import sys
from pathlib import Path

ROOT = Path(workflow.basedir)
sys.path.insert(0, str(ROOT / "src"))

from expertmiss.config import compose, section
from expertmiss.config.check import check_configuration
from expertmiss.engine.available import why_not
from expertmiss.errors import UserError
from expertmiss.experiments.lock import locked_digest
from expertmiss.generate.plan import lock_in_force
from expertmiss.provenance import source_hash

SNAKEMAKE_KEYS = ("experiment", "profile", "overrides")


def composed():
    """The configuration as plain containers; a user's mistake ends the call with one line."""
    chosen = {
        key: str(config[key]) for key in ("experiment", "profile") if key in config
    }
    overrides = config.get("overrides", [])
    extra = {key: value for key, value in config.items() if key not in SNAKEMAKE_KEYS}
    try:
        if not isinstance(overrides, list):
            raise UserError(
                f"""overrides: expected a list, as in --config 'overrides=["{overrides}"]'"""
            )
        chosen["overrides"] = [str(override) for override in overrides]
        found = compose(ROOT, **chosen, extra=extra)
        check_configuration(ROOT, found)
        reason = why_not(ROOT, found) if "e5" in found["experiments"] else None
        answers = found["generate"]["tasks"] and found["generate"]["run_on"] == "engine"
        if answers and (lacking := why_not(ROOT, found)):
            raise UserError(f"generate.run_on: {lacking}")
        found["not_measured"] = {"e5": reason} if reason else {}
        return found
    except UserError as problem:
        print(f"error: {problem}", file=sys.stderr, flush=True)
        # Snakemake wraps every exception of a Snakefile, SystemExit too, in a report of several lines.
        os._exit(2)


CONFIG = composed()
EXPERIMENT, MODEL, CORPUS = (
    CONFIG["experiment"],
    CONFIG["model"]["name"],
    CONFIG["corpus"]["name"],
)
SPLITS = CONFIG["capture"]["splits"]
ENGINE_SOURCES = sorted(
    os.path.relpath(path, ROOT)
    for part in ("engine", "core")
    for path in (ROOT / "src" / part).rglob("*")
    if path.suffix in (".cpp", ".hpp", ".h") or path.name == "CMakeLists.txt"
)
# Without the engine E5 is "not measured" in the report, and everything else runs.
STUDIES = [
    study for study in CONFIG["experiments"] if study not in CONFIG["not_measured"]
]
EMULATED = [study for study in STUDIES if study != "e5"]
# The generation test has a page of its own: under a lock it is confirmatory, and everything else is exploratory.
TASKS = CONFIG["generate"]["tasks"]
GENERATION_LOCK = lock_in_force(ROOT, CONFIG)
FIGURES = [
    "hit_rate",
    "substituted_mass",
    "gate_weight",
    "reuse_experts",
    "reuse_tokens",
    *(
        figure
        for figure in (
            "e1_loss",
            "e1_split",
            "e2_mass",
            "e4_bins",
            "e4_betas",
            "e5_front",
            "e5_parts",
            "e5_prediction",
        )
        if figure[:2] in STUDIES
    ),
]
EXPERIMENT_TABLES = {
    "e1": [
        f"e1_{table}"
        for table in ("measures", "split", "choosers", "gap", "statistics", "orders")
    ],
    "e2": [f"e2_{table}" for table in ("measures", "statistics", "gap", "orders")],
    "e4": [
        f"e4_{table}"
        for table in (
            "measures",
            "effects",
            "bins",
            "reswaps",
            "gap",
            "statistics",
            "orders",
        )
    ],
    "e5": [
        f"e5_{table}"
        for table in ("measures", "times", "statistics", "prediction", "orders")
    ],
}
# Of E5, in the order in which they run; analyze_e5 follows.
ENGINE_STAGES = ("calibrate_host", "run_engine", "compare_engine")
# `python` in the rules is the interpreter that runs Snakemake, whether or not its environment is activated.
shell.prefix(f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH; ")


def cfg(stage, *more):
    """The slice of the configuration that ``stage`` uses (and the paths ``more``), as JSON: a change elsewhere re-runs nothing."""
    return json.dumps(section(CONFIG, stage, *more), sort_keys=True)


def code(stage):
    """Content hash of the modules that ``stage`` runs: imported modules are invisible to Snakemake."""
    return source_hash(stage)


def locked(*plans):
    """Digests of what the plans locked: locking another plan re-runs nothing."""
    return [locked_digest(ROOT, plan, CONFIG["profile"]) for plan in plans]


def hold_lock():
    """One run at a time; the kernel frees the lock when the process dies, so that the same command works after kill -9."""
    global LOCK
    Path("results").mkdir(exist_ok=True)
    LOCK = open("results/.lock", "w")
    try:
        fcntl.flock(LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(
            "error: another snakemake is running in this folder; wait for it or stop it",
            file=sys.stderr,
            flush=True,
        )
        os._exit(2)


def results():
    """Everything a complete run leaves. Named in full: Snakemake does not remake a missing file that only finished files were made from."""
    here, place = f"results/{EXPERIMENT}", f"{MODEL}/{CORPUS}"
    return [
        f"reports/{EXPERIMENT}/index.html",
        f"reports/{EXPERIMENT}/numbers.tex",
        f"reports/{EXPERIMENT}/figures",
        f"reports/{EXPERIMENT}/tables",
        f"results/corpora/{CORPUS}/documents.parquet",
        f"{here}/tokenize_corpus/{place}/tokens.parquet",
        *(
            f"{here}/capture_traces/{place}/{split}/trace.safetensors"
            for split in SPLITS
        ),
        f"{here}/analyze_traces/{place}/exploratory/gate_weight.parquet",
        f"{here}/analyze_traces/{place}/exploratory/reuse.parquet",
        f"{here}/simulate_policies/{place}/cells.parquet",
        f"{here}/summarize_policies/{place}/summary.parquet",
        f"{here}/summarize_policies/{place}/differences.parquet",
        *(f"{here}/make_figures/{place}/svg/{figure}.svg" for figure in FIGURES),
        *(
            f"{here}/emulate_policies/{place}/{study}/{name}"
            for study in EMULATED
            for name in (
                "cells.parquet",
                "open_loop.parquet",
                "split.parquet",
                "nll.safetensors",
            )
        ),
        *(
            f"{here}/{name}"
            for name in (
                f"calibrate_host/{place}/profile.yaml",
                f"run_engine/{place}/cells.parquet",
                f"run_engine/{place}/times.parquet",
                f"compare_engine/{place}/e5_agreement.parquet",
            )
            if "e5" in STUDIES
        ),
        *statistics_tables(EXPERIMENT),
        *stage_runs(EXPERIMENT),
        *generation_files(),
    ]


def generation_files():
    """What a complete run leaves of the generation test."""
    here, page = f"results/{EXPERIMENT}", f"reports/{EXPERIMENT}/generation"
    if not TASKS:
        return []
    return [
        f"{here}/generate_answers/{MODEL}/{CORPUS}/answers.jsonl",
        *(
            f"{here}/compare_answers/{MODEL}/{CORPUS}/{table}.parquet"
            for table in E7_TABLES
        ),
        *(f"{page}/{name}" for name in ("index.html", "numbers.tex", "run.json")),
        *(f"{page}/{name}" for name in ("figures", "tables")),
    ]


def corpus_files(wildcards):
    """What the text is made from: the package list, or your own files."""
    corpus = CONFIG["corpus"]
    if corpus["kind"] == "builtin":
        lists = [
            "evaluation.txt",
            *(["train.txt"] if "train" in corpus["splits"] else []),
        ]
        return [f"{corpus['packages']}/{name}" for name in lists]
    folder = Path(corpus["folder"]) if corpus["kind"] == "local" else None
    return (
        sorted(
            str(path) for path in folder.rglob("*") if path.suffix in (".txt", ".jsonl")
        )
        if folder
        else []
    )


def model_files(wildcards):
    """The model's files when it is a folder here; a hub name is resolved by the stage."""
    folder = ROOT / CONFIG["model"]["path"]
    names = ("config.json", "model.safetensors", "tokenizer.json")
    return (
        [os.path.relpath(folder / name, ROOT) for name in names]
        if folder.is_dir()
        else []
    )


def emulated_text(wildcards):
    """Topic-shift streams for E4, documents for the others."""
    stage = "build_topic_shift" if wildcards.study == "e4" else "tokenize_corpus"
    return f"results/{wildcards.experiment}/{stage}/{wildcards.model}/{wildcards.corpus}/tokens.parquet"


def named(name, paths):
    """Several inputs of one name, as the stage's command line takes them."""
    return " ".join(f"--input {name}[]={shlex.quote(str(path))}" for path in paths)


def statistics_tables(experiment):
    """Every table of the emulated experiments and the judged claims."""
    place = f"{MODEL}/{CORPUS}"
    return [
        *(
            f"results/{experiment}/analyze_{study}/{place}/{table}.parquet"
            for study in STUDIES
            for table in EXPERIMENT_TABLES[study]
        ),
        *(
            [f"results/{experiment}/judge_claims/{place}/claims.parquet"]
            if STUDIES
            else []
        ),
    ]


def stage_runs(experiment):
    """run.json of every stage whose tables, figures or provenance the report shows, in the order in which they ran."""
    here = f"results/{experiment}"
    place = f"{MODEL}/{CORPUS}"
    return [
        f"results/corpora/{CORPUS}/run.json",
        f"{here}/tokenize_corpus/{place}/run.json",
        *(f"{here}/capture_traces/{place}/{split}/run.json" for split in SPLITS),
        f"{here}/analyze_traces/{place}/exploratory/run.json",
        f"{here}/simulate_policies/{place}/run.json",
        f"{here}/summarize_policies/{place}/run.json",
        *(f"{here}/emulate_policies/{place}/{study}/run.json" for study in EMULATED),
        *(
            f"{here}/{stage}/{place}/run.json"
            for stage in ENGINE_STAGES
            if "e5" in STUDIES
        ),
        *(f"{here}/analyze_{study}/{place}/run.json" for study in STUDIES),
        *([f"{here}/judge_claims/{place}/run.json"] if STUDIES else []),
        f"{here}/make_figures/{place}/run.json",
    ]


def gguf_file():
    """The model's GGUF file that the engine decodes."""
    return f"results/engine/{MODEL}-{CONFIG['engine']['type']}.gguf"


# Where the engine answers problems (generate.run_on): its inputs and options beside the stage's others. Otherwise a change of them re-runs nothing.
ENGINE_ANSWERS = CONFIG["generate"]["run_on"] == "engine"
ANSWERING_INPUTS = (
    {"gguf": gguf_file(), "engine": "build/engine/build.json"} if ENGINE_ANSWERS else {}
)
ANSWERING_OPTIONS = [
    f"engine.{name}"
    for name in ("type", "store", "device", "threads", "io_threads")
    if ENGINE_ANSWERS
]


def added_hosts(wildcards):
    """What `expertmiss report --add-host` brought in."""
    return sorted(
        str(path.relative_to(ROOT))
        for path in ROOT.glob(
            f"results/{wildcards.experiment}/added_hosts/*/added.json"
        )
    )


B_TABLES = ("b_plan", "b_arms", "b_pairs", "b_effects", "b_power")
B_SITES = ("b_sites", "b_site_model", "b_site_cells", "b_site_overlap")
B_PLAN = ("prereg/experiment_b.yaml", "prereg/experiment_b.md")
E7_TABLES = tuple(
    f"e7_{table}"
    for table in (
        "accuracy",
        "paired",
        "flips",
        "orders",
        "survival",
        "passes",
        "statistics",
        "predictions",
        "examples",
    )
)
GENERATION_PLAN = (
    "prereg/generation.yaml",
    "prereg/generation.md",
    "prereg/decide_generation.py",
)
# Pages that are confirmatory, or a pilot's, do not mix with the experiment's own page: their stage, its tables, the stages before it.
OWN_PAGES = {
    "experiment_b": ("decide_experiment_b", B_TABLES, ("tokenize_corpus",)),
    "experiment_b_pilot": ("pilot_experiment_b", B_TABLES, ("tokenize_corpus",)),
    "b_sites": ("measure_sites", B_SITES, ("tokenize_corpus",)),
    "generation": ("compare_answers", E7_TABLES, ("build_tasks", "generate_answers")),
}


def page_folder(wildcards):
    """Folder of the stage whose tables a page of its own shows."""
    return f"results/{wildcards.experiment}/{OWN_PAGES[wildcards.page][0]}/{MODEL}/{CORPUS}"


def page_runs(wildcards):
    """run.json of the stages behind a page of its own, in the order in which they ran."""
    here, place = f"results/{wildcards.experiment}", f"{MODEL}/{CORPUS}"
    return [
        f"results/corpora/{CORPUS}/run.json",
        f"{here}/capture_traces/{place}/calibration/run.json",
        *(f"{here}/{stage}/{place}/run.json" for stage in OWN_PAGES[wildcards.page][2]),
        f"{page_folder(wildcards)}/run.json",
        f"{here}/draw_{wildcards.page}/run.json",
    ]
