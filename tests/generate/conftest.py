"""A tiny model, its calibration trace and a few problems."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from expertmiss.stages import Context
from expertmiss.traces import capture
from tests.models.conftest import tiny_folder

__all__ = ["tiny_folder"]


def model_section(folder: Path) -> dict[str, object]:
    return {
        "name": "tiny", "path": str(folder), "revision": None, "dtype": "float32", "device": "cpu", "substrate": "random_weights", "title": "a test",
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
    """Five pilot problems of each task from three templates, and as many exploratory ones."""
    rows = [
        {"problem": f"{domain}/{split}/{i}", "split": split, "domain": domain, "source": f"template:{domain}{i // 2}", "prompt": f"Ask {i}:\n",
         "solution": "", "answer": "7", "tests": "[]" if domain == "word_problems" else '["assert False"]', "entry_point": ""}
        for domain in ("word_problems", "functions") for split in ("pilot", "exploratory") for i in range(5)
    ]  # fmt: skip
    path = tmp_path / "problems.parquet"
    pd.DataFrame(rows).to_parquet(path)
    return path
