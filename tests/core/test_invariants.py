"""Properties of every policy on every trace; ``check=True`` asserts the invariants of the definitions at each step."""

from __future__ import annotations

from typing import Any

import numpy as np
from core_helpers import FALLBACK_DROP, FALLBACK_FETCH, FETCH, HIT, SUBSTITUTE, meta, run
from hypothesis import given, settings
from hypothesis import strategies as st

BEYOND = st.floats(0, 2, width=32)
RULES = st.one_of(
    st.sampled_from([{"name": "fetch_all"}, {"name": "first_choice"}, {"name": "substitute_all"}]),
    st.builds(lambda tau: {"name": "threshold", "tau": tau}, BEYOND),
    st.builds(lambda a, b: {"name": "cumulative", "T1": min(a, b), "T2": max(a, b)}, BEYOND, BEYOND),
    st.builds(lambda alpha: {"name": "score_margin", "alpha": alpha}, BEYOND),
    st.builds(lambda lam, j: {"name": "cache_prior", "lambda": lam, "J": j}, BEYOND, st.integers(0, 2)),
    st.builds(lambda j, m: {"name": "max_rank", "J": j, "M": m}, st.integers(0, 2), st.integers(2, 4)),
    st.builds(lambda f: {"name": "drop_cold", "F": f}, BEYOND),
)
EVICTIONS = st.sampled_from([
    {"name": "lru"}, {"name": "fifo"}, {"name": "lfru"}, {"name": "lfu", "variant": "lifetime"}, {"name": "lfu", "variant": "in_cache"},
    {"name": "lfu", "variant": "half_life", "half_life": 3},
])  # fmt: skip
ADMISSIONS = st.one_of(
    st.sampled_from([{"name": "every_miss"}, {"name": "fetched_only"}]),
    st.builds(lambda beta, delay: {"name": "background", "beta": beta, "delay": delay}, BEYOND, st.integers(1, 4)),
)
CHOOSERS = st.sampled_from([{"name": "router_rank"}, {"name": "random", "seed": 1}, {"name": "matched_random", "margin": 0.5, "seed": 2}])
MODELS = st.sampled_from([
    meta(4, 2, 2), meta(6, 2, 2, gating="sigmoid", normalise=False, scale=2.0), meta(6, 2, 2, groups={"count": 3, "allowed": 2, "score": "top2_sum"}),
    meta(6, 2, 2, gating="sigmoid", bias=[[0.0, 0.3, -0.2, 0.1, 0.0, 0.0]] * 2),
])  # fmt: skip


@st.composite
def cases(draw: Any) -> tuple[Any, dict[str, Any], dict[str, Any], int, list[int]]:
    about = draw(MODELS)
    chosen = {
        "name": "drawn", "miss_rule": draw(RULES), "eviction": draw(EVICTIONS), "admission": draw(ADMISSIONS), "chooser": draw(CHOOSERS),
        "fallback": draw(st.sampled_from(["fetch", "drop"])), "update": draw(st.sampled_from(["requests", "executed"])),
        "scope": draw(st.sampled_from(["layer", "global"])), "state": draw(st.sampled_from(["reset", "carry"])),
        "initial": draw(st.sampled_from(["cold", "random"])), "upload_cap": draw(st.sampled_from([None, 1, 2])),
        "weights": draw(st.sampled_from([{"name": "own"}, {"name": "scaled", "a": 0.5}])),
    }  # fmt: skip
    rule = chosen["miss_rule"]["name"]
    if (about["bias"] and rule in ("score_margin", "cache_prior")) or (about["groups"] and rule == "cache_prior"):
        chosen["miss_rule"] = {"name": "first_choice"}
    if rule == "substitute_all" and chosen["admission"]["name"] != "background":
        chosen["admission"] = {"name": "every_miss"}
    tokens = draw(st.integers(1, 24))
    # few distinct values, so that ties are common
    z = np.random.default_rng(draw(st.integers(0, 10**6))).integers(-4, 5, size=(2, tokens, about["experts"])).astype(np.float32) / 4
    return (
        z,
        about,
        chosen,
        draw(st.integers(2, about["experts"])),
        sorted(draw(st.lists(st.integers(0, 2), min_size=tokens, max_size=tokens))),
    )


@settings(max_examples=400, deadline=None)
@given(cases())
def test_every_step_keeps_the_invariants_and_meters_add_up(case: Any) -> None:
    z, about, chosen, capacity, document = case
    result = run(z, about, chosen, capacity, document=document)
    meters, calls, landings = result["meters"], result["log"]["calls"], result["log"]["landings"]
    assert meters["tokens"].sum() == z.shape[0] * z.shape[1] and meters["calls"].sum() == 2 * meters["tokens"].sum()
    by_verdict = np.bincount(calls["verdict"], minlength=6)
    names = ("hits", "fetches", "substituted", "dropped", "fallback_fetches", "fallback_drops")
    rerouting = chosen["miss_rule"]["name"] in ("cache_prior", "max_rank")
    for verdict, name in enumerate(names):
        if not (rerouting and name == "substituted"):
            assert by_verdict[verdict] == meters[name].sum(), name
    misses = meters["compulsory"] + meters["collision"] + meters["capacity"]
    assert misses.sum() == len(calls["verdict"]) - by_verdict[HIT]
    assert meters["landings"].sum() == len(landings["t"])
    assert meters["evictions"].sum() == np.count_nonzero(calls["victim"] >= 0) + np.count_nonzero(landings["victim"] >= 0)
    assert (meters["wasted"] <= meters["evictions"]).all() and (meters["mass"] <= meters["tokens"] + 1e-9).all()
    assert (calls["victim"][~np.isin(calls["verdict"], [FETCH, FALLBACK_FETCH])] == -1).all()
    assert ((calls["substitute"] >= 0) == (calls["verdict"] == SUBSTITUTE)).all()
    assert ((calls["executed_weight"] == 0.0) >= (calls["verdict"] == FALLBACK_DROP)).all()
    assert meters["past_depth"].sum() == 0


@settings(max_examples=100, deadline=None)
@given(cases(), st.integers(1, 23))
def test_the_future_does_not_change_the_past(case: Any, cut: int) -> None:
    z, about, chosen, capacity, document = case
    cut = min(cut, z.shape[1])
    whole = run(z, about, chosen, capacity, document=document)["log"]["calls"]
    part = run(np.ascontiguousarray(z[:, :cut]), about, chosen, capacity, document=document[:cut])["log"]["calls"]
    for name, column in part.items():
        assert np.array_equal(column, whole[name][: len(column)]), name
