"""The compiled simulator against the oracle: every call, landing and meter, over the whole policy space."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.cases import ADMISSIONS, EVICTIONS, FLAVOURS, RULES, Case, cases, logits
from oracle.compare import (
    QUICK,
    assert_log,
    compare_simulate,
    core_simulate,
    explore,
    full_depth,
    lse_of,
    oracle_simulate,
    report_counts,  # noqa: F401 (an autouse fixture)
)
from oracle.defaults import policy
from oracle.evictions import half_life_table
from oracle.scores import Model, View, log_sum_exp
from oracle.state import draw
from oracle.step import VERDICTS

from expertmiss import _core

PAIRS = [(eviction, admission) for eviction in EVICTIONS for admission in ADMISSIONS]


@pytest.mark.parametrize("rule", RULES)
def test_each_rule(rule: str) -> None:
    explore(compare_simulate, 150, rule=rule)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_each_rule_at_length(rule: str) -> None:
    explore(compare_simulate, 700, rule=rule, tokens=60)


@pytest.mark.parametrize(("eviction", "admission"), PAIRS)
def test_each_eviction_with_each_admission(eviction: str, admission: str) -> None:
    explore(compare_simulate, 150, eviction=eviction, admission=admission, rule="first_choice", tokens=40)


@pytest.mark.parametrize("rule", ["first_choice", "threshold", "cumulative", "substitute_all"])
def test_background_at_length(rule: str) -> None:
    """Few experts and many tokens: entries wait in the queue, are fetched before they land, are evicted and substituted again."""
    explore(compare_simulate, 250, rule=rule, admission="background", experts=8, tokens=100)


def test_score_margin_is_open_below_and_closed_above() -> None:
    # One resident, expert 2, with s_2 / s_(K+1) = exp(-.5): excluded when 1 - alpha equals it, let in just above.
    z = np.array([[[1.125, 1.0, 0.5, -3.0]]], dtype=np.float32)
    edge = 1.0 - _core.exp(-0.5)
    for alpha, verdict in ((edge, "fallback_fetch"), (edge + 2.0**-52, "substitute")):
        case = Case(Model(1, 4, 1), policy("score_margin", miss_rule={"alpha": alpha}), 1, z, [0], [[0, 0, 1, 0]], 0)
        compare_simulate(case)
        assert oracle_simulate(case).calls[0].verdict == VERDICTS[verdict]
    # The resident is s_(K+1) itself: allowed.
    case = Case(Model(1, 4, 1), policy("score_margin", miss_rule={"alpha": 0.5}), 1, z, [0], [[0, 1, 0, 0]], 0)
    compare_simulate(case)
    assert oracle_simulate(case).calls[0].substitute == 1


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_opt(scope: str) -> None:
    explore(compare_simulate, 150, rule="fetch_all", eviction="opt", scope=scope)


@pytest.mark.parametrize("state", ["reset", "carry"])
@pytest.mark.parametrize("initial", ["warm", "cold", "random"])
def test_global_pool(initial: str, state: str) -> None:
    explore(compare_simulate, 150, scope="global", initial=initial, state=state)


@pytest.mark.parametrize("rule", RULES)
def test_512_experts(rule: str) -> None:
    """Ids 127/128, 255/256 and 511 cross the signed and unsigned byte and the last place."""
    explore(compare_simulate, 40, rule=rule, experts=512, tokens=12)


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_half_life_over_several_rescalings(scope: str) -> None:
    """2,200 tokens at h = 2 with ordinary routing: two rescalings."""
    z = np.random.default_rng(0).normal(size=(2200, 1, 8)).astype(np.float32)
    eviction = {"name": "lfu", "variant": "half_life", "half_life": 2}
    for rule in (policy(eviction=eviction, scope=scope), policy("first_choice", eviction=eviction, scope=scope)):
        compare_simulate(Case(Model(1, 8, 2), rule, 5, z, [0] * 2200, [[0] * 8], 0))


@pytest.mark.parametrize(("miss_at", "victim"), [(2047, 2), (2048, 1)])
def test_half_life_sets_long_unused_counts_to_zero(miss_at: int, victim: int) -> None:
    # R = {1, 2, 3, 4}, h = 2. Expert 1 is asked at t = 0 to 8 (its count ends near 55), 2 at t = 9 (22.6), then 3 and 4 in turn.
    # 2 has the smaller count. At t = 2048 = 2 h 512 both counts are below 2^-1000 of the increment: 0, and the older `last` decides: 1.
    asked = [1] * 9 + [2] + [3 + t % 2 for t in range(10, miss_at)] + [0, 1, 2]
    z = np.full((len(asked), 1, 5), -1.0, dtype=np.float32)
    z[range(len(asked)), 0, asked] = 1.0
    chosen = policy(eviction={"name": "lfu", "variant": "half_life", "half_life": 2})
    case = Case(Model(1, 5, 1), chosen, 4, z, [0] * len(asked), [[0, 1, 1, 1, 1]], 0)
    compare_simulate(case)
    assert oracle_simulate(case).calls[miss_at].victim == (0, victim)


@given(h=st.integers(1, 5000))
@settings(QUICK, max_examples=20)
def test_half_life_table(h: int) -> None:
    assert _core.half_life_table(h).tolist() == list(half_life_table(h))


@given(seed=st.integers(0, 2**64 - 1), values=st.lists(st.integers(0, 2**63 - 1), max_size=4))
@QUICK
def test_draws(seed: int, values: list[int]) -> None:
    assert _core.draw(seed, values) == draw(seed, *values)


@given(case=cases())
@QUICK
def test_ranking(case: Case) -> None:
    """Rank order, logits, smallest logit; log-sum-exp within 4 units in the last place of a 50-digit sum's neighbourhood."""
    model = case.model
    depth = full_depth(model)
    for layer in range(model.layers):
        ids, z, lse, zmin = _core.rank_logits(
            np.ascontiguousarray(case.z[:, layer]),
            depth,
            top_k=model.top_k,
            gating=model.gating,
            bias=None if model.bias is None else np.asarray(model.bias[layer]),
            groups=model.groups,
        )
        for token in range(len(case.documents)):
            row = case.z[token, layer].tolist()
            assert ids[token].tolist() == View(model, layer, row, _core.exp, lse[token]).order
            assert z[token].tolist() == [row[expert] for expert in ids[token]]
            assert zmin[token] == min(row)
            assert lse[token] == pytest.approx(log_sum_exp(row, math.exp), rel=2e-15, abs=2e-15 * len(row))


@given(case=cases(tokens=30), data=st.data())
@settings(QUICK, max_examples=400)
def test_shallow_traces_tell_when_they_do_not_suffice(case: Case, data: st.DataObject) -> None:
    """A trace of depth M < E decides as the full one does, unless it counts a step past its depth."""
    depth = data.draw(st.integers(case.model.top_k, full_depth(case.model)))
    try:
        have = core_simulate(case, depth=depth)
    except ValueError as error:  # group limits; max_rank's M or score_margin's K + 1 beyond the depth
        assert case.model.groups is not None or case.policy["miss_rule"]["name"] in ("max_rank", "score_margin", "cache_prior"), error
        return
    if have["meters"]["past_depth"].sum() == 0:
        want = oracle_simulate(case)
        assert_log(case, want.calls, want.landings, have["log"])


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_threads_do_not_change_the_log(flavour: str) -> None:
    z = logits(flavour, 3, 50, 3, 16)
    case = Case(
        Model(3, 16, 4),
        policy("first_choice", admission={"name": "background", "beta": 0.5, "delay": 1}),
        6,
        z,
        [token // 20 for token in range(50)],
        [[0] * 16] * 3,
        0,
    )
    one, two = core_simulate(case), core_simulate(case, threads=2)
    assert one["log"] is not None and two["log"] is not None
    for name, column in one["log"]["calls"].items():
        np.testing.assert_array_equal(column, two["log"]["calls"][name])  # type: ignore[literal-required]
    compare_simulate(case)


def test_infinite_beta_and_tau() -> None:
    """Parameters at infinity, as numbers."""
    for chosen in (
        policy("first_choice", admission={"name": "background", "beta": math.inf, "delay": 1}),
        policy("threshold", miss_rule={"tau": math.inf}),
        policy("drop_cold", miss_rule={"F": math.inf}),
    ):
        z = logits("sticky", 1, 60, 2, 12)
        compare_simulate(Case(Model(2, 12, 3), chosen, 4, z, [0] * 60, [[0] * 12] * 2, 0))


def test_lse_of_a_trace_is_that_of_the_stepper() -> None:
    """Un-normalised weights show the log-sum-exp, so equal weights mean an equal one."""
    z = logits("normal", 2, 5, 1, 16)
    case = Case(Model(1, 16, 3, normalise=False), policy(), 4, z, [0] * 5, [[0] * 16], 0)
    assert lse_of(case)[0][0] == _core.rank_logits(np.ascontiguousarray(z[:1, 0]), 16)[2][0]
    compare_simulate(case)
