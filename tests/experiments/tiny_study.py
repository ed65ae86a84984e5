"""A whole study on a tiny random model and invented text: what the stages of the emulated experiments are tested on. No result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from expertmiss.config import compose
from expertmiss.corpora.topic_shift import flags
from expertmiss.emulate import stage as emulation
from expertmiss.experiments import e1, e2, e4, judge
from expertmiss.figures import stage as figures
from expertmiss.report import stage as report
from expertmiss.stages import Context
from expertmiss.traces import capture
from tests.models.tiny import save_tiny

ROOT = Path(__file__).parents[2]
CLAIMS = ROOT / "config" / "claims.yaml"
RULES = ROOT / "prereg" / "e5.yaml"
CONTEXT = Context("test", "code")
PIECE = 140
STUDIES = ("e1", "e2", "e4")


def make_setting(folder: Path) -> dict[str, Any]:
    """A model, documents and streams, a calibration trace, and the configuration, in ``folder`` (below a folder ``results``)."""
    model = folder / "model"
    save_tiny("qwen3_moe", model, num_experts=64, max_position_embeddings=1024)
    draw = np.random.default_rng(0)

    def table(length: int, marks: list[int]) -> pd.DataFrame:
        rows = [
            {
                "split": split, "domain": "ab"[number % 2], "source": f"{split}{number}", "tokens": draw.integers(1, 60, length).tolist(),
                "topic_change": marks,
            }
            for split in ("calibration", "exploratory") for number in range(6)
        ]  # fmt: skip
        return pd.DataFrame(rows).assign(document=range(12))

    table(64, [0] * 64).to_parquet(folder / "tokens.parquet")
    marks = flags(PIECE, 2)
    table(len(marks), marks).to_parquet(folder / "streams.parquet")
    config = compose(ROOT, "tiny")
    config["model"] = {**config["model"], "name": "tiny", "path": str(model), "substrate": "random_weights"}
    for study in STUDIES:
        config[study]["documents"] = 5
    cfg = {"model": config["model"], "host": config["host"], "corpus": {"name": "invented"}}
    recording = {**cfg, "capture": {**config["capture"], "depth": 64, "batch": 2}}
    capture.run(recording, out=folder / "calibration", context=CONTEXT, tokens=folder / "tokens.parquet", split="calibration")
    return {"folder": folder, "config": config, "cfg": {**cfg, "emulate": config["emulate"]}, "recording": recording}


def emulate(setting: dict[str, Any], study: str, out: Path, **options: Any) -> None:
    """Run ``study`` into ``out``; ``options`` replace parts of the configuration."""
    folder = setting["folder"]
    cfg = {**setting["cfg"], study: setting["config"][study], **options}
    emulation.run(
        cfg, out=out, context=CONTEXT, tokens=folder / ("streams.parquet" if study == "e4" else "tokens.parquet"),
        calibration=folder / "calibration" / "trace.safetensors", claims=CLAIMS, study=study,
    )  # fmt: skip


def analyse(setting: dict[str, Any]) -> None:
    """Statistics of the emulated studies into ``a1``, ``a2``, ``a4``; a quick run's claims into ``claims``."""
    folder = setting["folder"]
    stats = {"stats": {**setting["config"]["stats"], "resamples": 120}}
    files = {
        study: {"cells": folder / study / "cells.parquet", "open_loop": folder / study / "open_loop.parquet", "claims": CLAIMS}
        for study in STUDIES
    }
    e1.run(stats, out=folder / "a1", context=CONTEXT, split=folder / "e1" / "split.parquet", **files["e1"])
    e2.run(stats, out=folder / "a2", context=CONTEXT, **files["e2"])
    e4.run(stats, out=folder / "a4", context=CONTEXT, nll=folder / "e4" / "nll.safetensors", **files["e4"])
    cfg = {"report": {"quick": True}, "model": {"substrate": "random_weights", "name": "tiny"}, "not_measured": {"e5": "no engine"}}
    judge.run(cfg, out=folder / "claims", context=CONTEXT, statistics=statistics(folder), claims=CLAIMS, e5=RULES)


def statistics(folder: Path) -> list[Path]:
    """The tables that claims are judged by."""
    return [folder / f"a{study[1]}" / f"{study}_statistics.parquet" for study in STUDIES]


def make_study(folder: Path) -> dict[str, Any]:
    """Everything of the study in ``folder``: emulation and statistics."""
    setting = make_setting(folder)
    for study in STUDIES:
        emulate(setting, study, folder / study)
    analyse(setting)
    return setting


def show(setting: dict[str, Any], out: Path) -> Path:
    """Figures and report of the study; the report's folder."""
    folder = setting["folder"]
    stages = [folder / name for name in ("a1", "a2", "a4", "claims")]
    tables = [path for stage in stages for path in sorted(stage.glob("*.parquet"))]
    figures.run({"report": {"quick": True}}, tables=tables, out=folder / "figures", context=CONTEXT)
    cfg = {**setting["config"], "policies": {}, "corpus": {"name": "invented"}}
    report.run(cfg, runs=[stage / "run.json" for stage in (*stages, folder / "figures")], out=out / "reports" / "test", context=CONTEXT)
    return out / "reports" / "test"
