"""Each miss rule on a step worked out by hand: exact verdicts, substitutes, weights and counts.

E = 6, K = 3, C = 3, warm start with experts 3, 4, 5 resident (5 most requested) unless said otherwise. The step asks experts 0, 1, 3
with gate weights .6, .3, .1, so 0 and 1 are misses and 3 is a hit. 2, 4 and 5 follow in rank order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from core_helpers import DROP, FALLBACK_DROP, FALLBACK_FETCH, FETCH, HIT, SUBSTITUTE, logits_of, meta, policy, run, totals

COUNTS = np.array([[0, 0, 0, 1, 2, 3]])
STEP = logits_of([[0, 1, 3]], 6, [0.6, 0.3, 0.1])


def calls_of(rule: str, z: Any = STEP, **changes: Any) -> tuple[Any, dict[str, float]]:
    result = run(z, meta(6, 3), policy(rule, initial="warm", **changes), 3, counts=COUNTS)
    return result["log"]["calls"], totals(result)


def test_fetch_all() -> None:
    calls, meters = calls_of("fetch_all")
    assert calls["verdict"].tolist() == [FETCH, FETCH, HIT]
    assert calls["victim"].tolist() == [4, 5, -1]  # 3 is needed; 4 entered before 5
    assert calls["executed_weight"] == pytest.approx([0.6, 0.3, 0.1])
    assert (meters["calls"], meters["hits"], meters["fetches"], meters["compulsory"], meters["agreement"]) == (3, 1, 2, 2, 1.0)


def test_substitute_all() -> None:
    calls, meters = calls_of("substitute_all", admission="every_miss")
    assert calls["verdict"].tolist() == [SUBSTITUTE, SUBSTITUTE, HIT]
    assert calls["substitute"].tolist() == [4, 5, -1]
    assert meters["substituted"] == 2 and meters["mass"] == pytest.approx(0.9) and meters["heaviest"] == pytest.approx(0.6)
    assert meters["agreement"] == pytest.approx(1 / 3)


def test_first_choice() -> None:
    calls, meters = calls_of("first_choice")
    assert calls["verdict"].tolist() == [FETCH, SUBSTITUTE, HIT]
    assert calls["victim"].tolist() == [4, -1, -1] and calls["substitute"].tolist() == [-1, 5, -1]
    assert meters["mass"] == pytest.approx(0.3)


@pytest.mark.parametrize(("tau", "verdict"), [(0.299, FETCH), (0.301, SUBSTITUTE)])
def test_threshold(tau: float, verdict: int) -> None:
    assert calls_of("threshold", tau=tau)[0]["verdict"].tolist() == [FETCH, verdict, HIT]


def test_threshold_always_fetches_the_first_choice() -> None:
    assert calls_of("threshold", tau=0.7)[0]["verdict"].tolist() == [FETCH, SUBSTITUTE, HIT]


@pytest.mark.parametrize(
    ("t1", "t2", "second"), [(0.61, 1.0, FETCH), (0.5, 0.61, SUBSTITUTE), (0.5, 0.59, DROP), (0.0, float("inf"), SUBSTITUTE)]
)
def test_cumulative(t1: float, t2: float, second: int) -> None:
    calls, meters = calls_of("cumulative", T1=t1, T2=t2)
    assert calls["verdict"].tolist() == [FETCH, second, HIT]
    if second == DROP:
        assert meters["dropped"] == 1 and meters["dropped_mass"] == pytest.approx(0.3)
        assert calls["executed_weight"] == pytest.approx([0.6 / 0.7, 0.0, 0.1 / 0.7])


def test_cumulative_counts_hits_before_a_miss() -> None:
    # the hit 3 comes first with .6: the miss at rank 1 sees c = .6
    z = logits_of([[3, 0, 1]], 6, [0.6, 0.3, 0.1])
    assert calls_of("cumulative", z, T1=0.5, T2=2.0)[0]["verdict"].tolist() == [HIT, SUBSTITUTE, SUBSTITUTE]


@pytest.mark.parametrize(("factor", "second"), [(0.89, FETCH), (0.91, DROP)])
def test_drop_cold(factor: float, second: int) -> None:
    # w = .3 against F / K
    assert calls_of("drop_cold", F=factor)[0]["verdict"].tolist() == [FETCH, second, HIT]


def test_score_margin_fetches_by_score_and_restricts_substitutes() -> None:
    # scores relative to the 4th expert (2): 0 has 6, 1 has 3, 3 has 1, 2 has 1, 4 has .5, 5 has .4
    z = np.log(np.array([[0.6, 0.3, 0.0999, 0.1, 0.05, 0.04]], np.float32))
    # alpha = 3 fetches at a score of 4 and more, and lets every resident stand in; 4 has left for 0
    calls, _ = calls_of("score_margin", z, alpha=3.0)
    assert calls["verdict"].tolist() == [FETCH, SUBSTITUTE, HIT] and calls["substitute"].tolist() == [-1, 5, -1]
    # alpha = 2 fetches at 3 and more
    assert calls_of("score_margin", z, alpha=2.0)[0]["verdict"].tolist() == [FETCH, FETCH, HIT]


def test_score_margin_falls_back_to_a_fetch() -> None:
    # all of S within the margin of s_(K+1), and no resident within it: residents 4, 5 lie far below (1 - alpha) s_(K+1)
    z = np.array([[0.0, -0.01, -0.03, -0.02, -5.0, -6.0]], np.float32)
    calls, meters = calls_of("score_margin", z, alpha=0.5, fallback="drop")
    assert calls["verdict"].tolist() == [FALLBACK_FETCH, FALLBACK_FETCH, HIT]
    assert meters["fallback_fetches"] == 2 and meters["substituted"] == 0 and meters["mass"] == 0.0


def test_cache_prior_prefers_residents() -> None:
    # z: 0 is 1.0, 1 is .9, 2 is .8, then residents 3: .5, 4: .4, 5: 0. Delta = 1. lambda .45 lifts 3 to .95 and 4 to .85.
    z = np.array([[1.0, 0.9, 0.8, 0.5, 0.4, 0.0]], np.float32)
    calls, meters = calls_of("cache_prior", z, **{"lambda": 0.45, "J": 0})
    assert calls["expert"].tolist() == [0, 1, 3] and calls["rank"].tolist() == [0, 1, 3]
    assert calls["verdict"].tolist() == [FETCH, FETCH, HIT]
    w = np.exp([1.0, 0.9, 0.8]) / np.exp([1.0, 0.9, 0.8]).sum()
    assert meters["substituted"] == 1 and meters["mass"] == pytest.approx(w[2]) and meters["agreement"] == pytest.approx(2 / 3)


def test_cache_prior_j_protects_the_first_ranks() -> None:
    z = np.array([[1.0, 0.9, 0.8, 0.5, 0.4, 0.3]], np.float32)
    assert calls_of("cache_prior", z, **{"lambda": 10.0, "J": 0})[0]["expert"].tolist() == [3, 4, 5]
    assert calls_of("cache_prior", z, **{"lambda": 10.0, "J": 1})[0]["expert"].tolist() == [0, 3, 4]


def test_cache_prior_averages_the_range_since_the_reset() -> None:
    # ranges 1.0 then 0.2: Delta = .6 at the second step; lambda = 1/3 lifts 3 by .2 from .82 to 1.02 > .99
    first = [1.0, 0.9, 0.8, 0.3, 0.2, 0.0]
    second = [1.0, 0.995, 0.99, 0.82, 0.81, 0.80]
    z = np.array([first, second], np.float32)
    calls, _ = calls_of("cache_prior", z, **{"lambda": 1 / 3, "J": 3})
    assert calls["expert"].tolist()[3:] == [0, 1, 2]  # J = 3 lifts them, too
    calls, _ = calls_of("cache_prior", z, eviction="fifo", **{"lambda": 1 / 3, "J": 0})
    assert calls["expert"].tolist()[:3] == [0, 1, 2]  # 3 reaches .3 + .333: not enough


@pytest.mark.parametrize(
    ("j", "m", "chosen"), [(0, 6, [3, 4, 5]), (1, 6, [0, 3, 4]), (0, 5, [0, 3, 4]), (3, 6, [0, 1, 2]), (1, 4, [0, 1, 3]), (0, 3, [0, 1, 2])]
)
def test_max_rank(j: int, m: int, chosen: list[int]) -> None:
    # true order 0 .. 5, residents 3, 4, 5
    z = logits_of([[0, 1, 2]], 6)
    calls, meters = calls_of("max_rank", z, J=j, M=m)
    assert calls["expert"].tolist() == chosen
    assert meters["hits"] == sum(expert >= 3 for expert in chosen)
    assert meters["hits"] + meters["fetches"] == 3
    assert meters["substituted"] == sum(expert not in chosen for expert in (0, 1, 2))


def test_fallback_drop_and_fetch_at_a_cold_start() -> None:
    z = logits_of([[0, 1, 3]], 6, [0.6, 0.3, 0.1])
    for fallback, verdict in (("fetch", FALLBACK_FETCH), ("drop", FALLBACK_DROP)):
        result = run(z, meta(6, 3), policy("substitute_all", admission="every_miss", fallback=fallback), 3)
        assert result["log"]["calls"]["verdict"].tolist() == [verdict] * 3
        meters = totals(result)
        assert meters["mass"] == 0.0 and meters["substituted"] == 0
        assert meters["dropped_mass"] == pytest.approx(1.0 if fallback == "drop" else 0.0)


@pytest.mark.parametrize(("weights", "scale"), [({"name": "own"}, 1.0), ({"name": "scaled", "a": 0.5}, 0.5)])
def test_own_and_scaled_renormalise(weights: dict[str, Any], scale: float) -> None:
    # S = 0, 1, 4: 0 is fetched and evicts 3, 4 is a hit, 5 stands in for 1
    z = np.log(np.array([[0.6, 0.3, 0.01, 0.1, 0.2, 0.05]], np.float32))
    calls, _ = calls_of("first_choice", z, weights=weights)
    assert calls["substitute"].tolist() == [-1, 5, -1]
    executed = np.array([0.6, 0.05 * scale, 0.2])
    assert calls["executed_weight"] == pytest.approx(executed / executed.sum())


def test_inherit_keeps_the_routers_weights() -> None:
    calls, _ = calls_of("first_choice", weights={"name": "inherit"})
    assert calls["executed_weight"] == pytest.approx([0.6, 0.3, 0.1])
    calls, _ = calls_of("cumulative", T1=0.5, T2=0.59, weights={"name": "inherit"})
    assert calls["executed_weight"] == pytest.approx([0.6, 0.0, 0.1])  # not renormalised after the drop


def test_models_that_do_not_normalise_execute_p() -> None:
    z = logits_of([[0, 1, 3]], 6)
    p = np.exp(z[0].astype(float)) / np.exp(z[0].astype(float)).sum()
    for weights, expected in (({"name": "own"}, p[[0, 5, 3]]), ({"name": "inherit"}, p[[0, 1, 3]])):
        chosen = policy("first_choice", initial="warm", weights=weights)
        result = run(z, meta(6, 3, normalise=False, scale=2.0), chosen, 3, counts=COUNTS)
        assert result["log"]["calls"]["executed_weight"] == pytest.approx(2.0 * expected)


def test_sigmoid_gates() -> None:
    z = logits_of([[0, 1, 3]], 6)
    p = 1 / (1 + np.exp(-z[0].astype(float)))
    result = run(z, meta(6, 3, gating="sigmoid"), policy("first_choice", initial="warm"), 3, counts=COUNTS)
    calls = result["log"]["calls"]
    assert calls["weight"] == pytest.approx(p[[0, 1, 3]] / p[[0, 1, 3]].sum())
    assert calls["executed_weight"] == pytest.approx(p[[0, 5, 3]] / p[[0, 5, 3]].sum())


def test_softmax_after_topk_is_softmax_renormalised() -> None:
    z = logits_of([[0, 1, 3]], 6)
    after = run(z, meta(6, 3, gating="softmax_after_topk", normalise=False), policy(), 3)
    plain = run(z, meta(6, 3), policy(), 3)
    assert after["log"]["calls"]["executed_weight"].tolist() == plain["log"]["calls"]["executed_weight"].tolist()


def test_a_zero_gate_sum_is_refused() -> None:
    z = np.full((1, 6), -800.0, np.float32)
    with pytest.raises(ValueError, match=r"layer 0, token 0.*sum to zero"):
        run(z, meta(6, 3, gating="sigmoid"), policy("threshold", tau=0.1), 3)
