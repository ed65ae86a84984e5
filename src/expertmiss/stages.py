"""The stages of the pipeline: which module runs each, and what a stage is told about its surroundings.

A rule, its stage, its log, its result folder and its MLflow run share one name. Each entry module has
``run(cfg, *, out, context, <inputs>)``: ``cfg`` is the slice of the configuration (see ``expertmiss.config.compose.SECTIONS``), ``out`` the
stage's folder, and every ``--input NAME=PATH`` arrives as the keyword argument ``NAME``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

STAGES: dict[str, str] = {
    "build_corpus": "expertmiss.corpora.build",
    "tokenize_corpus": "expertmiss.corpora.tokenize",
    "build_topic_shift": "expertmiss.corpora.topic_shift",
    "describe_model": "expertmiss.models.card",
    "capture_traces": "expertmiss.traces.capture",
    "analyze_traces": "expertmiss.stats.traces",
    "simulate_policies": "expertmiss.simulate.stage",
    "summarize_policies": "expertmiss.stats.summarize",
    "emulate_policies": "expertmiss.emulate.stage",
    "analyze_e1": "expertmiss.experiments.e1",
    "analyze_e2": "expertmiss.experiments.e2",
    "analyze_e4": "expertmiss.experiments.e4",
    "pilot_experiment_b": "expertmiss.experiments.b.pilot",
    "measure_sites": "expertmiss.experiments.b.sites",
    "run_experiment_b": "expertmiss.experiments.b.confirm",
    "decide_experiment_b": "expertmiss.experiments.b.decide",
    "calibrate_host": "expertmiss.engine.calibrate",
    "run_engine": "expertmiss.experiments.e5.run",
    "compare_engine": "expertmiss.experiments.e5.compare",
    "analyze_e5": "expertmiss.experiments.e5.analyze",
    "judge_claims": "expertmiss.experiments.judge",
    "build_tasks": "expertmiss.generate.build",
    "generate_answers": "expertmiss.generate.stage",
    "compare_answers": "expertmiss.generate.compare",
    "make_figures": "expertmiss.figures.stage",
    "render_report": "expertmiss.report.stage",
    "mlflow_sync": "expertmiss.tracking.sync",
}


@dataclass(frozen=True)
class Context:
    """What a stage records but does not compute with.

    Attributes:
        experiment: name of the experiment, first part of the result folders.
        source_hash: content hash of the modules that the stage runs.
        journal: JSONL file for progress; ``None`` for none.
    """

    experiment: str
    source_hash: str
    journal: Path | None = None
