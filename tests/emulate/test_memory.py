"""The memory target on a small checkpoint, in a process of its own with a limited data segment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "emulator_memory.py"
SMALL = ["--layers", "8", "--experts", "64", "--hidden", "256", "--inner", "160", "--tokens", "64"]


@pytest.mark.slow
def test_peak_memory_is_one_layer(tmp_path: Path) -> None:
    out = tmp_path / "memory.json"
    subprocess.run([sys.executable, str(BENCHMARK), *SMALL, "--json", str(out)], check=True, stdout=subprocess.DEVNULL)
    told = json.loads(out.read_text())
    assert told["checkpoint_mb"] > 1.9 * told["cap_mb"] > 3 * told["largest_layer_mb"]
    assert 0.9 <= told["ratio_with_activations"] <= 1.3  # below 0.9 the measurement itself would be wrong


@pytest.mark.slow
def test_the_cap_is_one(tmp_path: Path) -> None:
    """Below one layer's size nothing runs: the limit is not decoration."""
    done = subprocess.run([sys.executable, str(BENCHMARK), *SMALL, "--cap", "0.05"], check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert "memory" in done.stderr.lower()
