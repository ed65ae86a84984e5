"""Limits in which two policies must make the same decisions, on traces where both act."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from core_helpers import counts_of, meta, policy, random_logits, run, totals

EXPERTS, TOP_K, LAYERS, TOKENS, CAPACITY = 24, 4, 2, 160, 8
Z = random_logits(11, LAYERS, TOKENS, EXPERTS)
DOCUMENT = np.repeat([3, 1, 9, 4], TOKENS // 4).astype(np.int32)


def decisions(chosen: dict[str, Any], **options: Any) -> tuple[dict[str, Any], dict[str, float]]:
    result = run(Z, meta(EXPERTS, TOP_K, LAYERS), chosen, CAPACITY, document=DOCUMENT, counts=counts_of(Z, TOP_K), **options)
    log = result["log"]
    return {f"{kind}.{name}": column for kind in ("calls", "landings") for name, column in log[kind].items()}, totals(result)


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name, column in one.items():
        assert np.array_equal(column, other[name]), name


def warm(rule: str, **changes: Any) -> dict[str, Any]:
    return policy(rule, initial="warm", **changes)


@pytest.mark.parametrize("eviction", ["lru", {"name": "lfu", "variant": "half_life"}])
def test_threshold_0_is_fetch_all_and_infinity_is_first_choice(eviction: Any) -> None:
    for tau, rule in ((0.0, "fetch_all"), (float("inf"), "first_choice"), ("inf", "first_choice")):
        one, meters = decisions(warm("threshold", tau=tau, eviction=eviction))
        assert_same(one, decisions(warm(rule, eviction=eviction))[0])
        assert meters["fetches"] > 0


def test_beta_0_is_every_miss_and_infinity_is_fetched_only() -> None:
    every, meters = decisions(warm("first_choice", admission="every_miss"))
    assert meters["landings"] > 0
    assert_same(decisions(warm("first_choice", admission={"name": "background", "beta": 0.0, "delay": 1}))[0], every)
    none, meters = decisions(warm("first_choice"))
    assert meters["landings"] == 0 and meters["substituted"] > 0
    for infinite in (float("inf"), "inf"):
        assert_same(decisions(warm("first_choice", admission={"name": "background", "beta": infinite, "delay": 1}))[0], none)


@pytest.mark.parametrize("j", [0, TOP_K])
def test_lambda_0_is_fetch_all_and_a_large_one_reroutes(j: int) -> None:
    plain, _ = decisions(warm("fetch_all"))
    assert_same(decisions(warm("cache_prior", **{"lambda": 0.0, "J": j}))[0], plain)
    _, meters = decisions(warm("cache_prior", **{"lambda": 5.0, "J": 0}))
    assert meters["substituted"] > 0 and meters["fetches"] == 0


def test_max_rank_of_k_is_fetch_all() -> None:
    plain, _ = decisions(warm("fetch_all"))
    assert_same(decisions(warm("max_rank", J=0, M=TOP_K))[0], plain)
    assert_same(decisions(warm("max_rank", J=TOP_K, M=EXPERTS))[0], plain)


def test_full_residency_never_misses() -> None:
    z = random_logits(5, 1, 40, 8)
    for rule, changes in (("fetch_all", {}), ("threshold", {"tau": 0.15}), ("cache_prior", {"lambda": 1.0, "J": 1})):
        result = run(z, meta(8, 2), policy(rule, initial="warm", **changes), 8, counts=counts_of(z, 2))
        assert totals(result)["hits"] == 80


def test_cumulative_and_drop_cold_extremes() -> None:
    plain, _ = decisions(warm("fetch_all"))
    assert_same(decisions(warm("cumulative", T1=1.1, T2=2.0))[0], plain)
    assert_same(decisions(warm("drop_cold", F=0.0))[0], plain)
    _, meters = decisions(warm("drop_cold", F=float("inf")))
    first, _ = decisions(warm("first_choice"))
    assert meters["fetches"] == np.count_nonzero(first["calls.verdict"] == 1) > 0
    assert meters["dropped"] > 0 and meters["substituted"] == 0


def test_matched_random_of_margin_0_is_the_routers_order() -> None:
    one, _ = decisions(warm("first_choice", chooser={"name": "matched_random", "margin": 0.0, "seed": 3}))
    assert_same(one, decisions(warm("first_choice"))[0])
    wide, _ = decisions(warm("first_choice", chooser={"name": "matched_random", "margin": float("inf"), "seed": 3}))
    uniform, _ = decisions(warm("first_choice", chooser={"name": "random", "seed": 3}))
    assert_same(wide, uniform)
    assert not np.array_equal(wide["calls.substitute"], one["calls.substitute"])


def test_threads_do_not_change_anything() -> None:
    chosen = warm("threshold", tau=0.3, admission={"name": "background", "beta": 0.4, "delay": 2})
    assert_same(decisions(chosen, threads=2)[0], decisions(chosen)[0])


def test_layers_are_independent_and_documents_are() -> None:
    chosen = warm("threshold", tau=0.3, admission="every_miss")
    counts = counts_of(Z, TOP_K)
    both = run(Z, meta(EXPERTS, TOP_K, LAYERS), chosen, CAPACITY, document=DOCUMENT, counts=counts)
    alone = run(Z[1], meta(EXPERTS, TOP_K), chosen, CAPACITY, document=DOCUMENT, counts=counts[1:])
    part = run(Z[:, 40:80], meta(EXPERTS, TOP_K, LAYERS), chosen, CAPACITY, document=DOCUMENT[40:80], counts=counts)
    for name in ("fetches", "mass", "kl", "landings", "reswaps"):
        assert np.array_equal(both["meters"][name][:, 1], alone["meters"][name][:, 0]), name
        assert np.array_equal(both["meters"][name][1], part["meters"][name][0]), name


def test_a_shallow_trace_gives_the_same_until_it_says_so() -> None:
    chosen = warm("first_choice")
    full, _ = decisions(chosen)
    same, meters = decisions(chosen, depth=EXPERTS - 1)
    if meters["past_depth"] == 0:
        assert_same(full, same)
    _, meters = decisions(chosen, depth=TOP_K)
    assert meters["past_depth"] == np.count_nonzero(
        np.add.reduceat(full["calls.verdict"] == 2, np.arange(0, len(full["calls.t"]), TOP_K)) > 0
    )


def test_global_with_one_layer_is_layer() -> None:
    counts = counts_of(Z, TOP_K)[:1]
    for eviction in ("lru", "fifo", "lfru", {"name": "lfu", "variant": "half_life", "half_life": 8}):
        logs = []
        for scope in ("layer", "global"):
            chosen = warm("threshold", tau=0.3, admission="every_miss", eviction=eviction, scope=scope)
            logs.append(run(Z[0], meta(EXPERTS, TOP_K), chosen, CAPACITY, document=DOCUMENT, counts=counts)["log"])
        assert_same(logs[0]["calls"], logs[1]["calls"])
        assert_same(logs[0]["landings"], logs[1]["landings"])
