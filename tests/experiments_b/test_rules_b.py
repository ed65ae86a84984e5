"""Experiment B in the workflow: targets of its own, never part of the default run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAGES = {"pilot_experiment_b", "run_experiment_b", "decide_experiment_b", "measure_sites"}
PAGE = {"draw_page", "report_page"}


def planned(*arguments: str) -> set[str]:
    """Rules that a dry run would run."""
    call = [sys.executable, "-m", "snakemake", "-n", "--forceall", "--nolock", "--cores", "1", *arguments]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return set(re.findall(r"^(?:local)?rule (\w+):", done.stdout + done.stderr, re.M))


def test_the_default_run_has_none_of_it() -> None:
    assert not planned() & STAGES


@pytest.mark.parametrize(
    ("target", "stages"),
    [
        ("experiment_b_pilot", {"pilot_experiment_b"}), ("experiment_b", {"run_experiment_b", "decide_experiment_b"}), ("b_sites", {"measure_sites"}),
    ],
)  # fmt: skip
def test_targets_of_its_own(target: str, stages: set[str]) -> None:
    found = planned("--config", "experiment=b", "--", target)
    assert found & STAGES == stages and found >= PAGE
    assert not found & {"emulate_policies", "render_report", "make_figures", "mlflow_sync"}
