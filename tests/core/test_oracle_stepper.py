"""The compiled closed loop against the oracle, step by step, and its snapshots."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.cases import ADMISSIONS, EVICTIONS, RULES, Case, cases
from oracle.compare import (
    QUICK,
    compare_stepper,
    core_stepper,
    explore,
    report_counts,  # noqa: F401 (an autouse fixture)
)
from oracle.run import Oracle
from oracle.scores import View
from oracle.state import Key

from expertmiss import _core


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("eviction", EVICTIONS)
def test_each_rule_and_eviction(rule: str, eviction: str) -> None:
    explore(compare_stepper, 40, rule=rule, eviction=eviction)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_each_rule_at_length(rule: str) -> None:
    explore(compare_stepper, 350, rule=rule, eviction="lru", tokens=60)


@pytest.mark.parametrize("admission", ADMISSIONS)
def test_each_admission(admission: str) -> None:
    explore(compare_stepper, 100, rule="threshold", admission=admission, eviction="lfu_half_life", tokens=60)


def compare_by_the_clock(case: Case) -> None:
    """At every step some of the queue lands, in any order, whatever is due."""
    rng = np.random.default_rng(case.seed % 2**32)
    cap = min(case.policy.get("upload_cap") or case.capacity, case.capacity)

    def arrives(queue: list[Key]) -> list[Key]:
        chosen = rng.permutation(len(queue))[: rng.integers(0, len(queue) + 1)][:cap]
        return [queue[index] for index in chosen]

    compare_stepper(case, arrives=arrives)


@pytest.mark.parametrize("admission", ["every_miss", "background"])
@pytest.mark.parametrize("eviction", ["lru", "lfu_half_life", "lfu_in_cache"])
def test_landings_by_the_clock(admission: str, eviction: str) -> None:
    explore(compare_by_the_clock, 40, rule="first_choice", admission=admission, eviction=eviction, scope="layer", tokens=40)


def test_512_experts() -> None:
    explore(compare_stepper, 60, experts=512, eviction="lfru", tokens=10)


@given(case=cases(eviction="lru"))
@QUICK
def test_float64_logits_that_float32_cannot_hold(case: Case) -> None:
    """Differences below float32's resolution decide ranks and weights."""
    rng = np.random.default_rng(case.seed % 2**32)
    z = 1.0 + rng.integers(0, 4, size=case.z.shape) * 2.0**-50
    oracle = Oracle(case.model, case.policy, case.capacity, _core.exp, case.counts, case.seed)
    stepper = core_stepper(case)
    oracle.reset(0)
    stepper.reset(0)
    for token in range(len(z)):
        for layer in range(case.model.layers):
            lse = float(_core.rank_logits(z[token, layer][None], case.model.top_k)[2][0])
            outcome = oracle.step(layer, z[token, layer].tolist(), lse)
            ids, weights = stepper.step(layer, z[token, layer])
            assert ids.tolist() == outcome.executed
            assert weights.tolist() == [weight * case.model.scale for weight in outcome.weights]


def compare_explanations(case: Case) -> None:
    """Residents, queue, accumulated mass, X, and p, s and w after every step."""
    oracle = Oracle(case.model, case.policy, case.capacity, _core.exp, case.counts, case.seed)
    stepper = core_stepper(case)
    oracle.reset(0)
    stepper.reset(0)
    for token in range(len(case.z)):
        for layer in range(case.model.layers):
            z = case.z[token, layer]
            view = View(case.model, layer, z.tolist(), _core.exp, float(_core.rank_logits(z[None], case.model.top_k)[2][0]))
            outcome = oracle.step(layer, z.tolist(), view.lse)
            told = stepper.explain(layer, z)
            pool = oracle.pools[layer if case.policy["scope"] == "layer" else 0]
            assert told["residents_after"].tolist() == sorted(expert for at, expert in pool.entered if at == layer)
            assert told["queue"] == [(*key, due) for key, due in pool.Q]
            assert told["A"].tolist() == [pool.A.get((layer, expert), 0.0) for expert in range(case.model.experts)]
            assert told["requested"].tolist() == [call.expert for call in outcome.calls]
            assert told["weights"].tolist() == [weight * case.model.scale for weight in outcome.weights]
            assert told["t"] == oracle.t
            assert told["order"].tolist() == view.order
            assert told["p"].tolist() == [view.p[expert] for expert in view.order]
            assert told["s"].tolist() == [view.s[expert] for expert in view.order]
            assert told["w"].tolist() == [view.weight(expert) for expert in view.order]


@pytest.mark.parametrize("rule", RULES)
def test_explanations(rule: str) -> None:
    explore(compare_explanations, 30, rule=rule, admission="background", eviction="lfu_half_life", experts=8, tokens=60)


@given(case=cases(eviction="lfru", tokens=20), data=st.data())
@QUICK
def test_snapshots_restore_the_state(case: Case, data: st.DataObject) -> None:
    """A stepper restored half-way, and a fresh one that gets the snapshot, go on as the first did."""
    first = core_stepper(case)
    first.reset(case.documents[0])
    half = data.draw(st.integers(0, len(case.z)))

    def go(stepper: _core.Stepper, start: int, stop: int) -> list[list[float]]:
        made = []
        for token in range(start, stop):
            for layer in range(case.model.layers):
                ids, weights = stepper.step(layer, case.z[token, layer])
                made.append([*ids.tolist(), *weights.tolist()])
        return made

    go(first, 0, half)
    kept = first.snapshot()
    rest = go(first, half, len(case.z))
    end = first.snapshot()
    first.restore(kept)
    assert first.snapshot() == kept
    assert go(first, half, len(case.z)) == rest and first.snapshot() == end
    fresh = core_stepper(case)
    fresh.restore(kept)
    assert go(fresh, half, len(case.z)) == rest and fresh.snapshot() == end


@given(case=cases(scope="layer", eviction="lfu_in_cache"))
@QUICK
def test_whole_layers_at_once_equal_single_steps(case: Case) -> None:
    one, many = core_stepper(case), core_stepper(case)
    one.reset(0)
    many.reset(0)
    for layer in range(case.model.layers):
        ids, weights, n = many.steps(layer, np.ascontiguousarray(case.z[:, layer]))
        for token in range(len(case.z)):
            want_ids, want_weights = one.step(layer, case.z[token, layer])
            assert ids[token, : n[token]].tolist() == want_ids.tolist()
            assert weights[token, : n[token]].tolist() == want_weights.tolist()
    assert one.snapshot() == many.snapshot()
