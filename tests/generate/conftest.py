"""A tiny model, its calibration trace and a few problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from expertmiss.config.compose import load_policy, load_task
from expertmiss.stages import Context
from expertmiss.traces import capture
from tests.models.conftest import tiny_folder

__all__ = ["tiny_folder"]

ROOT = Path(__file__).parents[2]


def model_section(folder: Path) -> dict[str, object]:
    return {
        "name": "tiny", "path": str(folder), "revision": None, "dtype": "float32", "device": "cpu", "substrate": "random_weights", "title": "a test",
    }  # fmt: skip


def answers_section(folder: Path, arms: tuple[str, ...], **changed: Any) -> dict[str, Any]:
    """Configuration of generate_answers; ``tokens``: caps by task."""
    tokens = changed.pop("tokens", {"word_problems": 12, "functions": 16})
    generate = {"run_on": "emulator", "residency": 0.375, "samples": 1, "temperature": 0.0, "seed": 0, "rows": 6, "threads": 1, **changed}
    return {
        "model": model_section(folder), "host": {"name": "this_host"}, "corpus": {"name": "tiny"}, "profile": "builtin", "generate": generate,
        "sandbox": {"seconds": 5.0, "memory_mib": 512, "processes": 4, "allow_weak": False}, "arms": {name: load_policy(ROOT, name) for name in arms},
        "tasks": {name: {**load_task(ROOT, name), "tokens": cap} for name, cap in tokens.items()},
    }  # fmt: skip


@pytest.fixture
def calibration(tiny_folder: Path, tmp_path: Path) -> Path:
    draw = np.random.default_rng(1)
    rows = [
        {"document": i, "split": "calibration", "domain": "code", "source": f"s{i}", "tokens": draw.integers(0, 64, 40).tolist(), "topic_change": [0] * 40}
        for i in range(3)
    ]  # fmt: skip
    pd.DataFrame(rows).to_parquet(tmp_path / "tokens.parquet")
    cfg = {
        "model": model_section(tiny_folder), "host": {"name": "this_host"}, "corpus": {"name": "tiny"},
        "capture": {"documents": 3, "batch": 2, "threads": 1, "depth": 16, "splits": ["calibration"]},
    }  # fmt: skip
    out = tmp_path / "results" / "calibration"
    capture.run(cfg, out=out, context=Context("test", "hash"), tokens=tmp_path / "tokens.parquet", split="calibration")
    return out / "trace.safetensors"


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    """Four problems of each task from two templates."""
    rows = [
        {"problem": f"{domain}/{i}", "split": "pilot", "domain": domain, "source": f"template:{domain}{i // 2}", "prompt": f"Ask {i}:\n",
         "answer": "7", "tests": "[]" if domain == "word_problems" else '["assert False"]', "entry_point": "", "number": i}
        for domain in ("word_problems", "functions") for i in range(4)
    ]  # fmt: skip
    path = tmp_path / "problems.parquet"
    pd.DataFrame(rows).to_parquet(path)
    return path
