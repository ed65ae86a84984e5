"""Tables of the synthetic study for the figures' tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "stats"))
from synthetic_study import write_study


@pytest.fixture(scope="session")
def statistics(tmp_path_factory):
    """Paths of summary, differences, gate_weight and reuse, by name."""
    return write_study(tmp_path_factory.mktemp("figures") / "results")
