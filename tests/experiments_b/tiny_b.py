"""Experiment B in a folder of its own, on a tiny random model and invented text. No result."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from expertmiss.config import compose
from expertmiss.experiments.b import confirm, decide, pilot
from expertmiss.experiments.b.plan import DECISION, PLAN
from expertmiss.experiments.b.register import lock_experiment
from expertmiss.files import read_json, write_json
from expertmiss.stages import Context
from expertmiss.traces import capture
from tests.models.tiny import save_tiny

ROOT = Path(__file__).parents[2]
CONTEXT = Context("b", "code")
SIMULATIONS = 40


def make_project(root: Path) -> dict[str, Any]:
    """A project with the registered files, configuration, model, text and calibration trace; the configuration of its stages."""
    for folder in ("config", "prereg"):
        shutil.copytree(ROOT / folder, root / folder)
    for path in [*(root / "prereg").glob("*.result.json"), root / "prereg" / "LOCK.json"]:
        path.unlink(missing_ok=True)
    plan = yaml.safe_load((root / PLAN).read_text())
    plan |= {"min_sources": 6, "simulations": SIMULATIONS, "sizes": [8, 12]}
    (root / PLAN).write_text(yaml.safe_dump(plan))
    save_tiny("qwen3_moe", root / "models" / "builtin", num_experts=64, max_position_embeddings=1024)
    here = root / "results" / "b"
    tokens = here / "tokenize_corpus" / "builtin" / "builtin_b" / "tokens.parquet"
    tokens.parent.mkdir(parents=True)
    draw = np.random.default_rng(0)
    rows = [
        {"split": split, "domain": "ab"[number % 2], "source": f"{split}{number // 2}", "tokens": draw.integers(1, 60, 72).tolist(), "topic_change": [0] * 72}
        for split in ("calibration", "pilot", "confirmatory") for number in range(16)
    ]  # fmt: skip
    pd.DataFrame(rows).assign(document=range(len(rows))).to_parquet(tokens)
    config = compose(root, "b")
    config["model"] |= {"path": str(root / "models" / "builtin"), "substrate": "random_weights"}
    cfg = {"model": config["model"], "host": config["host"], "corpus": {"name": "builtin_b"}, "emulate": {"torch_threads": 1}}
    recording = {**cfg, "capture": {**config["capture"], "depth": 64, "documents": 4}}
    capture.run(recording, out=here / "calibration", context=CONTEXT, tokens=tokens, split="calibration")
    files = {"tokens": tokens, "calibration": here / "calibration" / "trace.safetensors"}
    return {"root": root, "here": here, "cfg": cfg, "files": files, "config": config}


def run_pilot(project: dict[str, Any]) -> dict[str, Any]:
    """The pilot where the lock looks for it; its proposal."""
    out = project["here"] / "pilot_experiment_b" / "builtin" / "builtin_b"
    root = project["root"]
    pilot.run(
        {**project["cfg"], "b": {"pilot_documents": 12}}, out=out, context=CONTEXT, plan=root / PLAN, decision=root / DECISION, **project["files"]
    )  # fmt: skip
    found: dict[str, Any] = read_json(out / "proposal.json")
    return found


def propose_anyway(project: dict[str, Any]) -> None:
    """Overwrite what the pilot of a random model refuses, so that the stages behind the lock can be tested."""
    path = project["here"] / "pilot_experiment_b" / "builtin" / "builtin_b" / "proposal.json"
    write_json(path, read_json(path) | {"refusal": "", "delta": 0.01, "n": 12})


def run_confirmatory(project: dict[str, Any]) -> Path:
    """The confirmatory cells; their folder."""
    out: Path = project["here"] / "run_experiment_b" / "builtin" / "builtin_b"
    confirm.run(
        {**project["cfg"], "profile": "builtin"}, out=out, context=CONTEXT, lock=project["root"] / "prereg" / "LOCK.json", **project["files"]
    )  # fmt: skip
    return out


def run_decision(project: dict[str, Any]) -> Path:
    """The decision on the cells; its folder."""
    out: Path = project["here"] / "decide_experiment_b" / "builtin" / "builtin_b"
    cells = project["here"] / "run_experiment_b" / "builtin" / "builtin_b" / "cells.parquet"
    cfg = {"model": {"name": "builtin"}, "profile": "builtin"}
    decide.run(cfg, out=out, context=CONTEXT, cells=cells, lock=project["root"] / "prereg" / "LOCK.json")
    return out


def lock_project(project: dict[str, Any]) -> dict[str, Any]:
    """Lock from the pilot."""
    return lock_experiment(project["root"], "b", "builtin")
