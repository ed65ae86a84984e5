"""Identities that the definitions state, on the oracle; and both sides refuse the same combinations."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import refusals
from oracle.cases import ADMISSIONS, EVICTIONS, RULES, Case, cases
from oracle.compare import QUICK, meta, oracle_simulate

from expertmiss import _core

SOME = settings(QUICK, max_examples=60)


def _decisions(case: Case, **changes: Any) -> tuple[list[Any], list[Any]]:
    result = oracle_simulate(dataclasses.replace(case, policy={**case.policy, **changes}))
    return result.calls, result.landings


@given(case=cases(rule="first_choice"))
@SOME
def test_background_at_its_two_ends(case: Case) -> None:
    zero, infinite = ({"name": "background", "beta": beta, "delay": 1} for beta in (0.0, math.inf))
    assert _decisions(case, admission=zero) == _decisions(case, admission={"name": "every_miss"})
    assert _decisions(case, admission=infinite) == _decisions(case, admission={"name": "fetched_only"})


@given(case=cases(rule="threshold"))
@SOME
def test_threshold_at_its_two_ends(case: Case) -> None:
    at_0, at_inf = ({"name": "threshold", "tau": tau} for tau in (0.0, math.inf))
    assert _decisions(case, miss_rule=at_0) == _decisions(case, miss_rule={"name": "fetch_all"})
    assert _decisions(case, miss_rule=at_inf) == _decisions(case, miss_rule={"name": "first_choice"})


@given(case=cases(rule="cache_prior", eviction="lru"))
@SOME
def test_rerouting_rules_without_force_fetch_all(case: Case) -> None:
    K = case.model.top_k
    fetch_all = _decisions(case, miss_rule={"name": "fetch_all"})
    assert _decisions(case, miss_rule={"name": "max_rank", "J": K, "M": K}) == fetch_all
    assert _decisions(case, miss_rule={"name": "max_rank", "J": 0, "M": K}) == fetch_all
    assert _decisions(case, miss_rule={"name": "cache_prior", "lambda": 0.0, "J": 0}) == fetch_all


@given(case=cases(), data=st.data())
@settings(QUICK, max_examples=600)
def test_the_same_combinations_are_refused(case: Case, data: st.DataObject) -> None:
    """Policies pieced together without regard to each other."""
    E, K = case.model.experts, case.model.top_k
    small = st.sampled_from([0.0, 0.25, 0.5, 1.0])
    parameters: dict[str, st.SearchStrategy[dict[str, Any]]] = {
        "threshold": st.fixed_dictionaries({"tau": small}),
        "cumulative": st.fixed_dictionaries({"T1": small, "T2": small}),
        "score_margin": st.fixed_dictionaries({"alpha": small}),
        "cache_prior": st.fixed_dictionaries({"lambda": small, "J": st.integers(0, K)}),
        "max_rank": st.fixed_dictionaries({"J": st.integers(0, K + 1), "M": st.integers(max(K - 1, 0), E + 1)}),
        "drop_cold": st.fixed_dictionaries({"F": small}),
    }
    rule = data.draw(st.sampled_from(RULES))
    admission: dict[str, Any] = {"name": data.draw(st.sampled_from(ADMISSIONS))}
    if admission["name"] == "background":
        admission |= {"beta": data.draw(st.sampled_from([0.0, 0.5, math.inf])), "delay": data.draw(st.integers(0, 2))}
    changed = {
        **case.policy,
        "miss_rule": {"name": rule, **data.draw(parameters[rule] if rule in parameters else st.just({}))},
        "admission": admission,
        "eviction": data.draw(st.sampled_from([*EVICTIONS.values(), {"name": "opt"}])),
        "weights": data.draw(st.sampled_from([{"name": "own"}, {"name": "inherit"}])),
        "upload_cap": data.draw(st.sampled_from([None, 0, 1])),
    }
    capacity = data.draw(st.integers(max(K - 1, 0), E + 1))
    try:
        refusals.check(case.model, changed, capacity)
    except ValueError as refused:
        with pytest.raises(ValueError):
            _core.check_policy(meta(case.model), changed, capacity)
            pytest.fail(f"the core accepts what the oracle refuses: {refused}")
        return
    _core.check_policy(meta(case.model), changed, capacity)
