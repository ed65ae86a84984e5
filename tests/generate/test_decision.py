"""The registered decisions: every rule on both sides of its bounds, and an answer to whatever is asked."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expertmiss.generate.plan import load_decision, load_plan

ROOT = Path(__file__).parents[2]
DECISION, PLAN = load_decision(ROOT), load_plan(ROOT)
RULES = PLAN["rules"]


def row(statistic: str, low: float, high: float, **more: Any) -> dict[str, Any]:
    return {
        "task": "t", "statistic": statistic, "arm": "", "against": "", "estimate": (low + high) / 2, "low": low, "high": high, "problems": 500, "templates": 60,
        "flips": 50, **more,
    }  # fmt: skip


def decided(rule: str, low: float, high: float, reference: float = 0.5, **more: Any) -> dict[str, Any]:
    plan = {"rules": RULES, "predictions": [{"id": "X", "task": "t", "rule": rule, "arm": "a"}]}
    rows = [row("accuracy", reference, 0.9), row(DECISION.STATISTICS[rule], low, high, arm="a", **more)]
    (found,) = DECISION.decide(plan, rows)
    assert found["id"] == "X" and found["why"]
    return dict(found)


@pytest.mark.parametrize(
    ("rule", "low", "high", "outcome"),
    [
        ("not_worse", -0.029, 0.02, "held"), ("not_worse", -0.03, 0.02, "undecided"), ("not_worse", -0.2, -0.031, "failed"), ("not_worse", -0.2, -0.03, "undecided"),
        ("worse", -0.2, -0.001, "held"), ("worse", -0.02, -0.001, "held"), ("worse", -0.029, 0.01, "failed"), ("worse", -0.03, 0.01, "undecided"),
        ("more_agreement", 0.001, 0.1, "held"), ("more_agreement", 0.0, 0.1, "undecided"), ("more_agreement", -0.1, -0.001, "failed"),
        ("more_agreement", -0.1, 0.0, "undecided"),
        ("mass_orders_arms", 0.7, 1.0, "held"), ("mass_orders_arms", 0.69, 1.0, "undecided"), ("mass_orders_arms", 0.2, 0.69, "failed"),
        ("mass_orders_arms", 0.2, 0.7, "undecided"),
        ("mass_blind", 0.41, 0.59, "held"), ("mass_blind", 0.4, 0.59, "undecided"), ("mass_blind", 0.61, 0.9, "failed"), ("mass_blind", 0.1, 0.39, "failed"),
        ("mass_blind", 0.5, 0.7, "undecided"),
    ],
)  # fmt: skip
def test_every_rule_at_its_bounds(rule: str, low: float, high: float, outcome: str) -> None:
    assert decided(rule, low, high)["outcome"] == outcome


@pytest.mark.parametrize(
    ("rule", "more", "why"),
    [
        ("not_worse", {"problems": 399}, "399 problems, 400 are needed"), ("not_worse", {"templates": 39}, "39 templates, 40 are needed"),
        ("not_worse", {"reference": 0.19}, "the reference is not clearly above 20%"), ("worse", {"reference": 0.19}, "the reference is not clearly above 20%"),
        ("not_worse", {"low": math.nan}, "the interval is not defined"), ("mass_blind", {"flips": 29}, "29 flips, 30 are needed"),
        ("not_worse", {"task": "another"}, "not measured"),
    ],
)  # fmt: skip
def test_too_little_is_undecided(rule: str, more: dict[str, Any], why: str) -> None:
    held = {"not_worse": (-0.01, 0.01), "worse": (-0.2, -0.1), "mass_blind": (0.45, 0.55)}[rule]
    low = more.pop("low", held[0])
    assert decided(rule, *held)["outcome"] == "held"
    found = decided(rule, low, held[1], **more)
    assert (found["outcome"], found["why"]) == ("undecided", why)


def test_agreement_needs_no_accuracy() -> None:
    assert decided("more_agreement", 0.1, 0.2, reference=0.0)["outcome"] == "held"


def test_a_measure_that_stands_twice_is_none() -> None:
    plan = {"rules": RULES, "predictions": [{"id": "X", "task": "t", "rule": "more_agreement"}]}
    rows = [row("agreement difference", 0.1, 0.2)] * 2
    assert DECISION.decide(plan, rows)[0]["outcome"] == "undecided"


values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(rules=values, predictions=st.lists(values | st.sampled_from(PLAN["predictions"]), max_size=4), statistics=values)
def test_it_is_total(rules: Any, predictions: Any, statistics: Any) -> None:
    found = DECISION.decide({"rules": rules, "predictions": predictions}, statistics)
    assert len(found) == len(predictions) and all(one["outcome"] in DECISION.OUTCOMES for one in found)
    assert DECISION.decide(rules, statistics) == [] or isinstance(rules, dict)


def test_the_plan_is_whole() -> None:
    names = [prediction["id"] for prediction in PLAN["predictions"]]
    assert len(set(names)) == len(names) == 18
    for prediction in PLAN["predictions"]:
        assert prediction["rule"] in DECISION.STATISTICS and prediction["task"] in PLAN["tasks"]
        assert {prediction.get("arm"), prediction.get("against")} <= {*PLAN["arms"], None}
    assert set(PLAN["order_arms"]) < set(PLAN["arms"]) and "substitute_all" not in PLAN["order_arms"] and PLAN["reference"] in PLAN["arms"]
    assert PLAN["problems"] >= RULES["min_problems"]
    words = (ROOT / "prereg" / "generation.md").read_text()
    for name in PLAN["arms"]:
        assert f"`{name.removesuffix('_background')}`" in words
