"""The rules of the claims, against statistics made by hand on either side of every bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from expertmiss.experiments.plans import load_claims
from expertmiss.experiments.verdicts import FAILS, HOLDS, INCONCLUSIVE, JUDGES, judge_c1, judge_c2, judge_c2a, judge_c2b, judge_c4

RULES = load_claims(Path(__file__).parents[2] / "config" / "claims.yaml")


def table(claim: str, rows: dict[str, tuple[float, ...]], **columns: Any) -> pd.DataFrame:
    """Statistics by name as (estimate, low, high)."""
    frame = pd.DataFrame(
        [{"claim": claim, "statistic": name, "estimate": e, "low": low, "high": high} for name, (e, low, high) in rows.items()]
    )
    return frame.assign(clusters=60, documents=200, policies=10, **columns)


@pytest.mark.parametrize(
    ("everything", "spared", "difference", "outcome"),
    [
        (0.02, (0.7, 0.5, 0.9), (0.2, 0.01, 0.3), HOLDS),
        (0.02, (0.7, 0.49, 0.9), (0.2, 0.01, 0.3), INCONCLUSIVE),
        (0.02, (0.7, 0.5, 0.9), (0.2, 0.0, 0.3), INCONCLUSIVE),
        (0.02, (0.3, 0.1, 0.49), (0.1, 0.01, 0.3), FAILS),
        (0.02, (0.7, 0.6, 0.9), (-0.2, -0.3, -0.01), FAILS),
        (0.005, (0.7, 0.6, 0.9), (0.2, 0.1, 0.3), INCONCLUSIVE),
    ],
)
def test_c1(everything: float, spared: tuple[float, ...], difference: tuple[float, ...], outcome: str) -> None:
    rows = {"loss of substitute_all": (0.05, everything, 0.1), "loss spared": spared, "loss spared minus calls spared": difference}
    assert judge_c1(table("C1", rows), RULES).outcome == outcome


@pytest.mark.parametrize(
    ("r", "left_out", "outcome"),
    [
        ((0.9, 0.7, 0.99), 0.5, HOLDS),
        ((0.9, 0.69, 0.99), 0.9, INCONCLUSIVE),
        ((0.9, 0.8, 0.99), 0.49, INCONCLUSIVE),
        ((0.5, 0.2, 0.69), 0.9, FAILS),
    ],
)
def test_c2(r: tuple[float, ...], left_out: float, outcome: str) -> None:
    rows = {
        "r of mass": r,
        "r of mass minus |r| of share of calls": (0.1, 0.01, 0.2),
        "r of mass without a": (0.9, 0.8, 1.0),
        "r of mass without b": (left_out, 0, 1),
    }
    assert judge_c2(table("C2", rows), RULES).outcome == outcome


def test_c2_says_when_the_plain_share_does_as_well() -> None:
    rows = {
        "r of mass": (0.9, 0.8, 1.0),
        "r of mass minus |r| of share of calls": (0.1, -0.01, 0.2),
        "r of mass without a": (0.9, 0.8, 1.0),
    }
    assert "not clearly better" in judge_c2(table("C2", rows), RULES).why


@pytest.mark.parametrize(
    ("rho", "documents", "outcome"),
    [
        ((0, -0.29, 0.29), 150, HOLDS),
        ((0, -0.29, 0.29), 149, INCONCLUSIVE),
        ((0.1, -0.1, 0.31), 200, INCONCLUSIVE),
        ((0.5, 0.31, 0.6), 200, FAILS),
    ],
)
def test_c2a(rho: tuple[float, ...], documents: int, outcome: str) -> None:
    frame = table("C2a", {"rho of inputs, x": (0.9, 0.8, 1), "rho of inputs, mean of policies": rho}).assign(documents=documents)
    assert judge_c2a(frame, RULES).outcome == outcome


@pytest.mark.parametrize(
    ("r", "policies", "outcome"),
    [((0.2, -0.5, 0.69), 6, HOLDS), ((0.2, -0.5, 0.69), 5, INCONCLUSIVE), ((0.8, 0.7, 0.9), 6, FAILS), ((0.7, 0.5, 0.9), 6, INCONCLUSIVE)],
)
def test_c2b(r: tuple[float, ...], policies: int, outcome: str) -> None:
    assert judge_c2b(table("C2b", {"r of mass": r}).assign(policies=policies), RULES).outcome == outcome


def c4(p: dict[str, float], low: dict[str, float] | None = None, documents: int = 60) -> pd.DataFrame:
    """Corrected p by base rule (both parts of a rule share it) and lower bounds by "<part> <rule>"."""
    rows = [
        {"claim": "C4", "statistic": f"{part} {family}", "part": part, "family": family, "p_holm": value, "low": (low or {}).get(f"{part} {family}", -1.0),
         "clusters": documents, "documents": documents}
        for family, value in p.items() for part in "ab"
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_c4() -> None:
    assert judge_c4(c4({"x": 0.024, "y": 0.9}), RULES).outcome == HOLDS
    assert judge_c4(c4({"x": 0.025, "y": 0.9}), RULES).outcome == INCONCLUSIVE
    assert judge_c4(c4({"x": 0.01, "y": 0.9}, documents=59), RULES).outcome == INCONCLUSIVE
    large = {"x": 0.9, "y": 0.9}
    for part in "ab":
        assert judge_c4(c4(large, {f"{part} x": 0.1, f"{part} y": 0.1}), RULES).outcome == FAILS
    assert judge_c4(c4(large, {"a x": 0.1, "b y": 0.1}), RULES).outcome == INCONCLUSIVE


@pytest.mark.parametrize("claim", sorted(JUDGES))
def test_too_few_clusters_decide_nothing(claim: str) -> None:
    rows = {
        "loss of substitute_all": (0.05, 0.02, 0.1), "loss spared": (0.7, 0.6, 0.9), "loss spared minus calls spared": (0.2, 0.1, 0.3),
        "r of mass": (0.9, 0.8, 0.99), "r of mass without a": (0.9, 0.8, 1.0), "r of mass minus |r| of share of calls": (0.1, 0.01, 0.2),
        "rho of inputs, mean of policies": (0, -0.1, 0.1),
    }  # fmt: skip
    frame = c4({"x": 0.01}) if claim == "C4" else table(claim, rows)
    verdict = JUDGES[claim][1](frame.assign(clusters=39), RULES)
    assert verdict.outcome == INCONCLUSIVE and "39" in verdict.why
