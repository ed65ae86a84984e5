"""Stage simulate_policies on a small trace: the table, its run.json, and what a trace says about itself."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from expertmiss.config.compose import load_policy
from expertmiss.simulate.stage import run
from expertmiss.stages import Context
from expertmiss.traces.format import write_trace
from tests.traces.traces_for_tests import random_trace

ROOT = Path(__file__).parents[2]


def test_cells_and_labels(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace", *random_trace(depth=16))
    policies = {name: load_policy(ROOT, name) for name in ("fetch_all", "first_choice")}
    cfg = {"simulate": {"residency": [0.25, 0.5], "seeds": [0, 1], "threads": 1, "max_past_depth": 0.0}, "policies": policies}
    run(cfg, out=tmp_path / "out", context=Context("test", "hash"), trace=tmp_path / "trace", calibration=tmp_path / "trace")
    cells = pd.read_parquet(tmp_path / "out" / "cells.parquet")
    assert len(cells) == 2 * 2 * 3 and set(cells["capacity"]) == {4, 8} and set(cells["seed"]) == {0}
    assert (cells["hits"] + cells["fetches"] + cells["substituted"] + cells["fallback_fetches"] == cells["calls"]).all()
    assert (cells["compulsory"] + cells["collision"] + cells["capacity_misses"] == cells["calls"] - cells["hits"]).all()
    labels = json.loads((tmp_path / "out" / "run.json").read_text())["labels"]
    assert labels["notes"] == ["test data", "open loop"] and labels["routing"] == "synthetic"
