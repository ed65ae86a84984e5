"""E5's stages on the real engine with the built-in model and a few short streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from expertmiss.config import compose
from expertmiss.engine import calibrate
from expertmiss.engine.reads import expert_blocks
from expertmiss.experiments.e5 import analyze, compare
from expertmiss.experiments.e5 import run as engine_run
from expertmiss.files import read_json
from expertmiss.traces import capture
from tests.engine.builtin import BUILTIN, DOCUMENTS, ROOT, builtin_file
from tests.experiments.tiny_study import CLAIMS, CONTEXT, RULES

TOKENS = 96


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every stage once; the folder they wrote into, and the configuration."""
    from tokenizers import Tokenizer

    folder = tmp_path_factory.mktemp("study") / "results"
    folder.mkdir()
    tokenizer = Tokenizer.from_file(str(BUILTIN / "tokenizer.json"))
    texts = [tokenizer.encode(text).ids[:TOKENS] for text in DOCUMENTS]
    rows = [
        {"split": split, "domain": "a", "source": f"{split}{number}", "tokens": text, "topic_change": [0] * TOKENS}
        for split in ("calibration", "exploratory") for number, text in enumerate(texts)
    ]  # fmt: skip
    pd.DataFrame(rows).assign(document=range(6)).to_parquet(folder / "tokens.parquet")
    config = compose(ROOT, "tiny")
    cfg = {"model": {**config["model"], "path": str(BUILTIN)}, "host": config["host"], "corpus": {"name": "builtin"}}
    for split in ("calibration", "exploratory"):
        recording = {**cfg, "capture": {**config["capture"], "batch": 1}}
        capture.run(recording, out=folder / split, context=CONTEXT, tokens=folder / "tokens.parquet", split=split)
    options = {**config["e5"], "documents": 2, "repeats": 2, "residency": [0.5], "timed_documents": 1, "compared_documents": 1}
    rounds = {"calibration_rounds": 3, "calibration_tokens": 32, "calibration_reads": 8}
    cfg |= {"engine": {**config["engine"], "store": "mapped", **rounds}, "e5": options, "emulate": {"torch_threads": 1}}
    (folder / "build.json").write_text("{}")
    files = {"gguf": builtin_file(tmp_path_factory, "F32"), "engine": folder / "build.json", "tokens": folder / "tokens.parquet"}
    calibrate.run(cfg, out=folder / "calibrate", context=CONTEXT, **files)
    fixed = {"calibration": folder / "calibration" / "trace.safetensors", "claims": CLAIMS, "rules": RULES}
    engine_run.run(cfg, out=folder / "run", context=CONTEXT, **files, **fixed)
    compare.run(cfg, out=folder / "compare", context=CONTEXT, **files, **fixed)
    statistics = {"stats": {**config["stats"], "resamples": 100}, "model": {"substrate": "builtin_trained"}}
    analyze.run(
        statistics, out=folder / "a5", context=CONTEXT, cells=folder / "run" / "cells.parquet", times=folder / "run" / "times.parquet",
        profile=folder / "calibrate" / "profile.yaml", trace=folder / "exploratory" / "trace.safetensors", **fixed,
    )  # fmt: skip
    return {"folder": folder, "gguf": files["gguf"]}


def test_the_parts_of_a_tokens_time_add_up_and_decisions_repeat(study: dict[str, Any]) -> None:
    times = pd.read_parquet(study["folder"] / "run" / "times.parquet")
    np.testing.assert_allclose(times["wall"], times[["compute", "waiting", "deciding", "background"]].sum(axis=1), rtol=1e-9)
    assert read_json(study["folder"] / "run" / "run.json")["metrics"]["nll_between_repeats"] == 0
    expert = int(expert_blocks(study["gguf"])[0, 0, :, 1].sum())
    assert (times["fetch_bytes"] % expert == 0).all() and (times.loc[times["policy"] == "fetch_all", "fetch_bytes"] > 0).all()
    assert (times.loc[times["policy"].isin(["fetch_all", "rule_015"]), "admission_bytes"] == 0).all()
    assert times.loc[times["policy"] == "substitute_all", "admission_bytes"].min() > 0


def test_the_engine_agrees_with_the_emulator(study: dict[str, Any]) -> None:
    table = pd.read_parquet(study["folder"] / "compare" / "e5_agreement.parquet")
    assert len(table) == 6 and table["unexplained"].sum() == 0
    assert 0 < table["eps"].max() < 1e-3 and table["nll_difference"].abs().max() < 1e-3


def test_the_lossless_requests_are_the_simulators(study: dict[str, Any]) -> None:
    prediction = pd.read_parquet(study["folder"] / "a5" / "e5_prediction.parquet").set_index(["policy", "capacity"])
    row = prediction.loc[("fetch_all", 64)]
    assert row["predicted_bytes"] == pytest.approx(row["measured_bytes"], rel=0.02)


def test_the_profile_is_whole(study: dict[str, Any]) -> None:
    profile = yaml.safe_load((study["folder"] / "calibrate" / "profile.yaml").read_text())
    timing = profile["timing"]
    steps = timing.pop("fetch_s")
    assert len(steps) == 8 and steps[0] >= 0 and sorted(steps) == steps
    may_be_zero = ("read_s", "busy_read_s", "landing_layer_s", "landing_s", "background_s")  # no part of a fit is below zero
    assert all(value >= 0 if name in may_be_zero else value > 0 for name, value in timing.items())
    assert Path(study["folder"] / "calibrate" / "calibration.csv").is_file()
