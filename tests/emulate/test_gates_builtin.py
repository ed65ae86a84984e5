"""Agreement gates 1b, 1c, 2, 3 and 5 on the built-in model."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expertmiss import _core
from expertmiss.emulate.agreement import FirstDifference, eps, first_differences
from expertmiss.emulate.emulator import Emulated, Emulator
from expertmiss.emulate.replay import open_loop, recorded_trace
from expertmiss.emulate.rows import Row
from expertmiss.models.load import load_model
from expertmiss.policies import simulate

ROOT = Path(__file__).parents[2]
CAPACITY, TOKENS, DOCUMENTS = 64, 80, (3, 4)
HALF_LIFE, BACKGROUND = {"name": "lfu", "variant": "half_life"}, {"name": "background", "beta": 0.5, "delay": 1}
POLICIES: dict[str, dict[str, Any]] = {
    "fetch_all": {"miss_rule": {"name": "fetch_all"}},
    "substitute_all": {"miss_rule": {"name": "substitute_all"}, "admission": {"name": "every_miss"}},
    "first_choice": {"miss_rule": {"name": "first_choice"}},
    "quality_first": {"miss_rule": {"name": "threshold", "tau": 0.15}, "eviction": HALF_LIFE, "admission": BACKGROUND},
    "matched": {"miss_rule": {"name": "first_choice"}, "chooser": {"name": "matched_random", "margin": 0.5, "seed": 3}, "admission": {"name": "every_miss"}},
    "cache_prior": {"miss_rule": {"name": "cache_prior", "lambda": 0.3, "J": 1}},
    "score_margin": {"miss_rule": {"name": "score_margin", "alpha": 0.3}},
    "max_rank": {"miss_rule": {"name": "max_rank", "J": 2, "M": 24}},
}  # fmt: skip


def row(name: str, policy: dict[str, Any], capacity: int = CAPACITY) -> Row:
    return Row(name, {"name": name, "initial": "cold", **policy}, capacity)


ROWS = [row(name, policy) for name, policy in POLICIES.items()]


@cache
def builtin(dtype: str = "float32") -> Any:
    return load_model(ROOT / "models" / "builtin", dtype)


@cache
def text(document: int) -> np.ndarray[Any, Any]:
    source = (ROOT / "src" / "expertmiss" / "stats" / "bootstrap.py").read_text(encoding="utf-8")
    ids = builtin()[1](source)["input_ids"]
    return np.asarray(ids[document * TOKENS : (document + 1) * TOKENS], dtype=np.int64)


@cache
def whole(document: int) -> tuple[Emulated, list[Any]]:
    """Every policy over a document as one sequence."""
    emulator = Emulator(builtin()[0], ROWS, log=True)
    return emulator.whole(text(document), document, keep=True), emulator.take_logs()


@cache
def stepped(document: int, mutant: str | None = None) -> tuple[Emulated, list[Any]]:
    """The same token by token, free running."""
    emulator = Emulator(builtin()[0], ROWS, log=True, mutant=mutant)
    return emulator.stepped(text(document), document, keep=True), emulator.take_logs()


@cache
def forced(document: int) -> tuple[float, float]:
    """(largest difference of output logits, eps) with the decisions of the whole-sequence run forced onto the stepped one."""
    one, _ = whole(document)
    other = Emulator(builtin()[0], ROWS).stepped(text(document), document, keep=True, forced=one.decisions)
    assert one.logits is not None and other.logits is not None and one.decisions is not None and other.decisions is not None
    return float((one.logits - other.logits).abs().max()), eps(one.decisions.logits, other.decisions.logits)


def judged(document: int, mutant: str | None = None) -> list[list[FirstDifference]]:
    """First differences of every row."""
    (one, mine), (_, theirs) = whole(document), stepped(document, mutant)
    assert one.decisions is not None
    found = []
    for index, (left, right) in enumerate(zip(mine, theirs, strict=True)):
        logits = [layer[0][index] for layer in one.decisions.logits]
        found.append(first_differences(left["calls"], right["calls"], logits, ROWS[index].policy))
    return found


def passes(found: list[list[FirstDifference]], layers: int, bound: float) -> bool:
    """Gate 1c over (document, row) pairs: near-ties only, in at most 5 % of the (document, layer) pairs."""
    near = all(one.margin <= bound for of_row in found for one in of_row if not one.follows)
    return near and sum(len(of_row) for of_row in found) <= 0.05 * layers * len(found)


@pytest.mark.slow
def test_1b_forced_decisions_give_the_same_logits() -> None:
    for document in DOCUMENTS:
        difference, noise = forced(document)
        assert difference <= 1e-3
        assert 0 < noise <= 1e-4  # measured 5e-6: the two forms do differ, by rounding


@pytest.mark.slow
def test_1b_in_bfloat16() -> None:
    """Numbers of 8 bits: output logits of 14 are 0.06 apart, and 0.125 was measured. Asked: 2^-6 of the largest, 3.5 of its steps."""
    emulator = Emulator(builtin("bfloat16")[0], ROWS[:4])
    one = emulator.whole(text(3), 3, keep=True)
    other = emulator.stepped(text(3), 3, keep=True, forced=one.decisions)
    assert one.logits is not None and other.logits is not None
    assert (one.logits - other.logits).abs().max() <= 2**-6 * one.logits.abs().max()
    assert abs(one.nll.mean() - other.nll.mean()) <= 1e-3 * one.nll.mean()  # measured 3e-5


@pytest.mark.slow
def test_1c_free_running_differs_at_near_ties_only() -> None:
    found = [of_row for document in DOCUMENTS for of_row in judged(document)]
    assert passes(found, 6, 4 * max(forced(document)[1] for document in DOCUMENTS))


@pytest.mark.slow
@pytest.mark.parametrize("mutant", sorted(set(_core.MUTANTS) - {"tie_higher_id", "stale_mass"}))
def test_1d_the_judgement_can_fail(mutant: str) -> None:
    """A defect of the stepped side only. Two do not act here (no ties, and no expert substituted, fetched and substituted again in a short text):
    the tiny models' gate catches those.
    """
    assert not passes(judged(3, mutant), 6, 4 * forced(3)[1])


@pytest.mark.parametrize("name", POLICIES)
def test_2_replay_of_recorded_logits_decides_identically(name: str) -> None:
    """And gate 3's zero: an open-loop replay of ``fetch_all`` under ``fetch_all`` is the closed loop."""
    index = list(POLICIES).index(name)
    documents = [(document, whole(document)[0]) for document in DOCUMENTS]
    emulator = Emulator(builtin()[0], ROWS)
    result = simulate(recorded_trace(documents, index, emulator.meta), ROWS[index].policy, CAPACITY, log=True, check=True)
    for part in ("calls", "landings"):
        closed = {
            column: np.concatenate([whole(document)[1][index][part][column] for document in DOCUMENTS]) for column in result["log"][part]
        }
        order = np.lexsort((np.arange(len(closed["t"])), closed["layer"], closed["t"], closed["document"]))  # walked layer by layer
        assert part == "landings" or len(order) == 2 * TOKENS * 6 * 8
        for column, values in result["log"][part].items():
            np.testing.assert_array_equal(closed[column][order], values, err_msg=column)
    for meter, values in result.items():
        if meter not in ("log", "document"):
            np.testing.assert_array_equal([emulated.meters[meter][index] for _, emulated in documents], values, err_msg=meter)


def test_3_open_loop_of_the_reference_is_its_closed_loop() -> None:
    emulated, _ = whole(3)
    assert emulated.decisions is not None
    logits = [layer[0][0] for layer in emulated.decisions.logits]
    meta = Emulator(builtin()[0], ROWS[:1]).meta
    (opened,) = open_loop(logits, ROWS[:1], np.zeros((6, 256), dtype=np.int64), 3, meta)
    assert opened == {name: values[0].sum() for name, values in emulated.meters.items()}


def test_3_open_loop_of_a_policy_differs_from_its_closed_loop() -> None:
    """The gap that the report states exists: substitutions change what the routers see."""
    documents = [(document, whole(document)[0]) for document in DOCUMENTS]
    trace = recorded_trace(documents, 0, Emulator(builtin()[0], ROWS).meta)
    index = list(POLICIES).index("substitute_all")
    opened = simulate(trace, ROWS[index].policy, CAPACITY)
    closed = np.stack([emulated.meters["mass"][index] for _, emulated in documents])
    assert opened["mass"][:, 1:] != pytest.approx(closed[:, 1:])
    np.testing.assert_array_equal(opened["mass"][:, 0], closed[:, 0])  # below layer 0 nothing is substituted


def alone(policy: dict[str, Any]) -> tuple[Emulated, Any]:
    """One policy in a batch of its own, so that equal decisions are multiplied by equal kernels."""
    emulator = Emulator(builtin()[0], [row("one", policy)], log=True)
    return emulator.whole(text(3), 3), emulator.take_logs()[0]


EQUAL = {
    "threshold(0)": ({"miss_rule": {"name": "threshold", "tau": 0.0}}, POLICIES["fetch_all"]),
    "threshold(inf)": ({"miss_rule": {"name": "threshold", "tau": math.inf}}, POLICIES["first_choice"]),
    "beta 0": (
        {"miss_rule": {"name": "first_choice"}, "admission": {"name": "background", "beta": 0.0, "delay": 1}},
        {"miss_rule": {"name": "first_choice"}, "admission": {"name": "every_miss"}},
    ),
    "beta inf": (
        {"miss_rule": {"name": "first_choice"}, "admission": {"name": "background", "beta": math.inf, "delay": 1}},
        POLICIES["first_choice"],
    ),
    "lambda 0": ({"miss_rule": {"name": "cache_prior", "lambda": 0.0, "J": 0}}, POLICIES["fetch_all"]),
}  # fmt: skip


@pytest.mark.parametrize("name", EQUAL)
def test_5_ends_of_a_parameter_are_the_other_rule(name: str) -> None:
    (one, mine), (other, theirs) = (alone(policy) for policy in EQUAL[name])
    for part in ("calls", "landings"):
        for column, values in mine[part].items():
            np.testing.assert_array_equal(values, theirs[part][column])
    assert one.nll.tobytes() == other.nll.tobytes()


@pytest.mark.parametrize("strong", ["substitute_all", "cache_prior", "max_rank", "score_margin", "beta 0"])
def test_5_full_strength_fires(strong: str) -> None:
    """A rule that acts substitutes, and the loss shows it."""
    policies = {**POLICIES, "beta 0": EQUAL["beta 0"][0], "cache_prior": {"miss_rule": {"name": "cache_prior", "lambda": 1.0, "J": 0}}}
    (one, _), (reference, _) = alone(policies[strong]), alone(POLICIES["fetch_all"])
    assert one.meters["substituted"].sum() > 0 and one.meters["mass"].sum() > 0
    assert (reference.meters["substituted"] == 0).all()
    assert (one.nll != reference.nll).any()
    if strong == "beta 0":
        assert one.meters["landings"].sum() > 0
