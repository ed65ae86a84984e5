"""The registered decision: every row of its table, totality, and its error rates where they are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

from expertmiss.experiments.b.plan import load_decision, load_plan

ROOT = Path(__file__).parents[2]
DECISION = load_decision(ROOT)
MU, DELTA = 0.05, 0.01


def made(difference: Any, *, heavy: float = MU, light: float = MU, failing: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """A plan and outcomes of 40 documents, two a source, in two domains; ``difference`` is a number or one number a document."""
    n = 40
    names = [str(index) for index in range(n)]
    plan = {name: value for name, value in load_plan(ROOT).items() if name in (
        "mass_tolerance", "arms_tolerance", "documents_share", "confidence", "equivalence_confidence")}  # fmt: skip
    plan |= {"documents": {name: f"digest{name}" for name in names}, "mu": MU, "delta": DELTA}
    masses = np.full(n, heavy)
    masses[:failing] = 2 * MU
    outcomes: dict[str, Any] = {
        "document": names, "digest": [f"digest{name}" for name in names], "source": [f"s{index // 2}" for index in range(n)],
        "domain": ["ab"[index // 20] for index in range(n)], "nll_heavy": (2.0 + np.broadcast_to(difference, n)).tolist(), "nll_light": [2.0] * n,
        "mass_heavy": masses.tolist(), "mass_light": [light] * n,
    }  # fmt: skip
    return plan, outcomes


SPREAD = np.tile([0.004, 0.004, -0.004, -0.004], 10)  # constant within sources; standard error of the mean about 0.0009
ROWS = [
    ("equivalent at zero", 0.0 + SPREAD, {}, "equivalent", False),
    ("equivalent, not zero", 0.005 + SPREAD, {}, "equivalent", True),
    ("equivalent, not zero, below", -0.005 + SPREAD, {}, "equivalent", True),
    ("heavy worse", 0.02 + SPREAD, {}, "heavy_worse", True),
    ("heavy worse though delta is inside the interval", 0.0095 + SPREAD, {}, "heavy_worse", True),
    ("light worse", -0.02 + SPREAD, {}, "light_worse", True),
    ("inconclusive", 0.002 + 10 * SPREAD, {}, "inconclusive", False),
    ("mass of both arms too low", 0.02 + SPREAD, {"heavy": 0.89 * MU, "light": 0.89 * MU}, "no_verdict", False),
    ("mass just inside", 0.02 + SPREAD, {"heavy": 0.905 * MU, "light": 0.905 * MU}, "heavy_worse", True),
    ("arms apart", 0.02 + SPREAD, {"heavy": 0.97 * MU, "light": 1.03 * MU}, "no_verdict", False),
    ("arms just near", 0.02 + SPREAD, {"heavy": 0.98 * MU, "light": 1.02 * MU}, "heavy_worse", True),
    ("a fifth fails", 0.02 + SPREAD, {"failing": 8}, "heavy_worse", True),
    ("more than a fifth fails", 0.02 + SPREAD, {"failing": 9}, "no_verdict", False),
    ("a failing check comes before equivalence", 0.0 + SPREAD, {"failing": 9}, "no_verdict", False),
]  # fmt: skip


@pytest.mark.parametrize(("difference", "options", "verdict", "not_zero"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_rows_of_the_decision(difference: Any, options: dict[str, Any], verdict: str, not_zero: bool) -> None:
    found = DECISION.decide(*made(difference, **options))
    assert (found["verdict"], found["not_zero"]) == (verdict, not_zero)
    assert found["estimate"] == pytest.approx(float(np.mean(difference)))


def test_the_interval_is_that_of_source_totals_within_domains() -> None:
    draw = np.random.default_rng(1)
    difference = draw.normal(size=40) + np.repeat([0.0, 3.0], 20)  # domains far apart cost no precision
    found = DECISION.decide(*made(difference))
    pairs = difference.reshape(20, 2).sum(axis=1)
    residual = pairs - np.repeat(pairs.reshape(2, 10).mean(axis=1), 10)
    error = np.sqrt(20 / 18 * (residual**2).sum()) / 40
    assert found["high"] - found["estimate"] == pytest.approx(error * student.ppf(0.975, 18))
    assert found["high_equivalence"] - found["estimate"] == pytest.approx(error * student.ppf(0.95, 18))


def drop(outcomes: dict[str, Any], index: int) -> None:
    for values in outcomes.values():
        del values[index]


BROKEN = {
    "missing document": (lambda plan, outcomes: drop(outcomes, 3), "document 3 is missing"),
    "changed document": (lambda plan, outcomes: outcomes["digest"].__setitem__(5, "other"), "document 5 differs"),
    "foreign document": (lambda plan, outcomes: plan["documents"].pop("7"), "document 7 is not registered"),
    "a document twice": (lambda plan, outcomes: outcomes["document"].__setitem__(1, "0"), "stands twice"),
    "no number": (lambda plan, outcomes: outcomes["nll_heavy"].__setitem__(0, float("nan")), "not a finite number"),
    "no mass": (lambda plan, outcomes: outcomes["mass_light"].__setitem__(0, float("inf")), "not a finite number"),
    "no delta": (lambda plan, outcomes: plan.pop("delta"), "cannot be used"),
    "delta of zero": (lambda plan, outcomes: plan.__setitem__("delta", 0.0), "not positive"),
    "confidence of one": (lambda plan, outcomes: plan.__setitem__("confidence", 1.0), "not below 1"),
    "lengths": (lambda plan, outcomes: outcomes["source"].pop(), "differ in length"),
    "one source": (lambda plan, outcomes: outcomes.__setitem__("source", ["s"] * 40), "too few sources"),
    "words for numbers": (lambda plan, outcomes: outcomes.__setitem__("nll_light", ["x"] * 40), "cannot be used"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "reason"), BROKEN.values(), ids=list(BROKEN))
def test_what_cannot_be_decided_has_no_verdict(change: Any, reason: str) -> None:
    plan, outcomes = made(0.02 + SPREAD)
    change(plan, outcomes)
    found = DECISION.decide(plan, outcomes)
    assert found["verdict"] == "no_verdict" and reason in found["reason"]


junk = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=200)
@given(key=st.sampled_from(["documents", "mu", "delta", "documents_share", "confidence", *DECISION.COLUMNS]), value=junk)
def test_the_decision_is_total(key: str, value: Any) -> None:
    plan, outcomes = made(0.02 + SPREAD)
    (outcomes if key in DECISION.COLUMNS else plan)[key] = value
    assert DECISION.decide(plan, outcomes)["verdict"] in DECISION.VERDICTS
    assert DECISION.decide({key: value}, outcomes)["verdict"] == "no_verdict"


@settings(deadline=None, max_examples=200)
@given(
    difference=st.lists(st.floats(-1, 1), min_size=40, max_size=40), heavy=st.floats(0.04, 0.06), light=st.floats(0.04, 0.06),
    failing=st.integers(0, 40),
)  # fmt: skip
def test_the_first_row_that_applies_holds(difference: list[float], heavy: float, light: float, failing: int) -> None:
    found = DECISION.decide(*made(difference, heavy=heavy, light=light, failing=failing))
    if found["share_passed"] < 0.8:
        expected = "no_verdict"
    elif max(abs(found["low_equivalence"]), abs(found["high_equivalence"])) < DELTA:
        expected = "equivalent"
    else:
        expected = "heavy_worse" if found["low"] > 0 else "light_worse" if found["high"] < 0 else "inconclusive"
    assert found["verdict"] == expected


def test_false_verdicts_are_as_rare_as_registered() -> None:
    """At a true effect of delta, ``equivalent`` appears in about 5 % (one side of the 90 % interval); at 0 a direction in about 5 %."""
    draw = np.random.default_rng(2)
    counted = {effect: dict.fromkeys(DECISION.VERDICTS, 0) for effect in (0.0, DELTA)}
    for effect, counts in counted.items():
        for _ in range(1500):
            difference = effect + np.repeat(draw.normal(0, 0.012, 20), 2) + draw.normal(0, 0.012, 40)
            counts[DECISION.decide(*made(difference))["verdict"]] += 1
    assert counted[DELTA]["equivalent"] / 1500 < 0.07
    assert (counted[0.0]["heavy_worse"] + counted[0.0]["light_worse"]) / 1500 < 0.07
