"""The rules of prereg/e5.yaml on either side of every bound, and that the claims table speaks of what was not measured."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from expertmiss.experiments.e5.plan import load_rules
from expertmiss.experiments.e5.verdicts import judge_c2_engine, judge_c5, judge_c5a, judge_c5b
from expertmiss.experiments.verdicts import FAILS, HOLDS, INCONCLUSIVE, NOT_TESTABLE
from tests.experiments.tiny_study import RULES

RULE = load_rules(RULES)


def table(rows: dict[str, tuple[float, float]], time: tuple[str, ...], *, sources: int = 40, pairs: int = 10, **more: Any) -> pd.DataFrame:
    """Statistics with the bounds of ``rows``; those named in ``time`` are over pairs."""
    return pd.DataFrame([
        {
            "statistic": name, "low": low, "high": high, "estimate": (low + high) / 2, "kind": "time" if name in time else "quality",
            "clusters": pairs if name in time else sources, "trained": True, **more,
        }
        for name, (low, high) in rows.items()
    ])  # fmt: skip


C5 = {
    "D of quality_first": (0.001, 0.01), "D of speed_first": (0.001, 0.01), "D of substitute_all": (0.04, 0.06), "ratio of quality_first": (1.21, 3.0),
    "ratio of speed_first": (1.21, 3.0),
}  # fmt: skip
TIMES = ("ratio of quality_first", "ratio of speed_first", "time ratio")


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({}, HOLDS),
        ({"ratio of speed_first": (1.2, 3.0)}, INCONCLUSIVE),
        ({"ratio of quality_first": (1.0, 1.19)}, FAILS),
        ({"ratio of quality_first": (1.0, 1.2)}, INCONCLUSIVE),
        ({"D of speed_first": (0.001, 0.0101)}, INCONCLUSIVE),
        ({"D of speed_first": (0.0151, 0.02)}, FAILS),
        ({"D of speed_first": (0.015, 0.02)}, INCONCLUSIVE),
        ({"D of substitute_all": (-0.01, 0.06)}, INCONCLUSIVE),
    ],
)
def test_c5(change: dict[str, tuple[float, float]], outcome: str) -> None:
    assert judge_c5(table(C5 | change, TIMES), RULE).outcome == outcome


def test_c5_needs_a_trained_model_and_enough_of_both_units() -> None:
    assert judge_c5(table(C5, TIMES, trained=False), RULE).outcome == NOT_TESTABLE
    few = judge_c5(table(C5, TIMES, pairs=9), RULE)
    assert few.outcome == INCONCLUSIVE and few.why == "9 (stream, repeat) pairs, 10 are needed"
    few = judge_c5(table(C5, TIMES, sources=39), RULE)
    assert few.outcome == INCONCLUSIVE and few.why == "39 sources, 40 are needed"


@pytest.mark.parametrize(
    ("loss", "ratio", "outcome"),
    [
        ((-0.008, -0.001), (0.9, 1.09), HOLDS),
        ((-0.008, -0.001), (0.9, 1.10), INCONCLUSIVE),
        ((-0.008, 0.0), (0.9, 1.0), INCONCLUSIVE),
        ((0.0, 0.01), (0.5, 0.6), FAILS),
    ],
)
def test_c5a(loss: tuple[float, float], ratio: tuple[float, float], outcome: str) -> None:
    assert judge_c5a(table({"NLL difference": loss, "time ratio": ratio}, TIMES), RULE).outcome == outcome


@pytest.mark.parametrize(
    ("rise", "ratio", "outcome"),
    [
        ((-0.001, 0.0049), (0.9, 0.99), HOLDS),
        ((-0.001, 0.005), (0.9, 0.99), INCONCLUSIVE),
        ((-0.001, 0.0049), (0.9, 1.0), INCONCLUSIVE),
        ((-0.001, 0.0049), (1.0, 1.1), FAILS),
        ((0.0051, 0.01), (0.9, 0.99), FAILS),
    ],
)
def test_c5b(rise: tuple[float, float], ratio: tuple[float, float], outcome: str) -> None:
    assert judge_c5b(table({"perplexity rise": rise, "time ratio": ratio}, TIMES), RULE).outcome == outcome


@pytest.mark.parametrize(
    ("r", "without", "policies", "families", "outcome"),
    [
        ((0.7, 0.95), 0.5, 8, 4, HOLDS),
        ((0.69, 0.95), 0.9, 10, 5, INCONCLUSIVE),
        ((0.8, 0.95), 0.49, 10, 5, INCONCLUSIVE),
        ((0.1, 0.69), 0.6, 10, 5, FAILS),
        ((0.8, 0.95), 0.9, 7, 4, INCONCLUSIVE),
        ((0.8, 0.95), 0.9, 8, 3, INCONCLUSIVE),
    ],
)
def test_c2_on_the_engine(r: tuple[float, float], without: float, policies: int, families: int, outcome: str) -> None:
    rows = {"r of mass": r, **{f"r of mass without {number}": (without, without) for number in range(families)}}
    assert judge_c2_engine(table(rows, (), policies=policies), RULE).outcome == outcome
