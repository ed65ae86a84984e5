"""Every policy that the definitions refuse: one clear line that names the policy, the field, and what to do."""

from __future__ import annotations

from typing import Any

import pytest
from core_helpers import meta

from expertmiss.errors import UserError
from expertmiss.policies import validate

MODEL = meta(16, 4, layers=2)
BIASED = {**MODEL, "bias": [[0.0] * 16] * 2}
GROUPED = {**MODEL, "groups": {"count": 4, "allowed": 2, "score": "max"}}
GOOD: dict[str, Any] = {
    "name": "mine", "miss_rule": {"name": "threshold", "tau": 0.15}, "chooser": {"name": "router_rank"}, "weights": {"name": "own"},
    "eviction": {"name": "lru"}, "admission": {"name": "fetched_only"}, "fallback": "fetch", "update": "requests", "scope": "layer",
    "state": "reset", "prompt": "ignore", "upload_cap": None, "initial": "warm",
}  # fmt: skip


def rule(name: str, **parameters: Any) -> dict[str, Any]:
    return {"miss_rule": {"name": name, **parameters}}


def admission(beta: Any) -> dict[str, Any]:
    return {"admission": {"name": "background", "beta": beta, "delay": 1}}


ALLOWED = [
    {},
    rule("fetch_all"),
    rule("first_choice"),
    rule("threshold", tau=float("inf")),
    rule("threshold", tau="inf"),
    rule("cumulative", T1=0.0, T2="inf"),
    rule("score_margin", alpha=0),
    rule("cache_prior", **{"lambda": 0.5, "J": 4}),
    rule("max_rank", J=0, M=16),
    rule("drop_cold", F=1),
    {**rule("substitute_all"), "admission": {"name": "every_miss"}},
    {**rule("substitute_all"), **admission(0.5)},
    {**rule("fetch_all"), "eviction": {"name": "opt"}},
    {"eviction": {"name": "lfu", "variant": "half_life", "half_life": 64}},
    {"eviction": {"name": "lfu", "variant": "half_life"}},
    {"chooser": {"name": "matched_random", "margin": 0.5, "seed": 3}},
    {"weights": {"name": "scaled", "a": 0.5}},
    {"weights": {"name": "inherit"}},
    {"upload_cap": 1},
    {"miss_rule": {"name": "threshold", "tau": 0.15, "alpha": None}},
]

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"miss_rul": {}}, "unknown option 'miss_rul'; did you mean 'miss_rule'?"),
    ({"miss_rule": None}, "miss_rule is missing"),
    ({"miss_rule": "threshold"}, "miss_rule must be a mapping"),
    ({"miss_rule": {"tau": 1}}, "miss_rule: name is missing"),
    (rule("treshold", tau=0.1), "miss_rule: unknown name 'treshold'; did you mean 'threshold'?"),
    (rule("threshold", tua=0.1), "threshold: unknown parameter 'tua'; did you mean 'tau'?"),
    (rule("threshold"), "threshold needs parameter 'tau'"),
    (rule("fetch_all", tau=0.1), "fetch_all has no parameter 'tau'"),
    (rule("threshold", tau="heavy"), "tau must be a number"),
    (rule("threshold", tau=True), "tau must be a number"),
    (rule("threshold", tau=-0.1), "tau must be at least 0"),
    (rule("threshold", tau=float("nan")), "tau must be a number"),
    (rule("cumulative", T1=0.5, T2=0.4), "T1 <= T2"),
    (rule("cumulative", T1=-0.5, T2=0.4), "0 <= T1"),
    (rule("score_margin", alpha=-1), "alpha must be finite and at least 0"),
    (rule("cache_prior", **{"lambda": -1, "J": 0}), "lambda must be finite and at least 0"),
    (rule("cache_prior", **{"lambda": 1, "J": 5}), "0 <= J <= K"),
    (rule("cache_prior", **{"lambda": 1, "J": 0.5}), "J must be an integer"),
    (rule("max_rank", J=5, M=16), "0 <= J <= K <= M <= E"),
    (rule("max_rank", J=0, M=3), "0 <= J <= K <= M <= E"),
    (rule("max_rank", J=0, M=17), "0 <= J <= K <= M <= E"),
    (rule("drop_cold", F=-1), "F must be at least 0"),
    ({"chooser": {"name": "matched_random"}}, "matched_random needs parameter 'margin'"),
    ({"chooser": {"name": "matched_random", "margin": -1}}, "margin must be at least 0"),
    ({"chooser": {"name": "router"}}, "chooser: unknown name 'router'"),
    ({"weights": {"name": "scaled"}}, "scaled needs parameter 'a'"),
    ({"weights": {"name": "scaled", "a": 0}}, "a must be finite and above 0"),
    ({"eviction": {"name": "least_stale"}}, "eviction: unknown name 'least_stale'"),
    ({"eviction": {"name": "lfu"}}, "lfu needs parameter 'variant'"),
    ({"eviction": {"name": "lfu", "variant": "halflife"}}, "did you mean 'half_life'?"),
    ({"eviction": {"name": "lfu", "variant": "lifetime", "half_life": 3}}, "half_life belongs to variant half_life"),
    ({"eviction": {"name": "lfu", "variant": "half_life", "half_life": 0}}, "half_life must be between 1"),
    ({"eviction": {"name": "opt"}}, "eviction opt needs miss rule fetch_all"),
    ({"admission": {"name": "background"}}, "background needs parameter 'beta'"),
    ({"admission": {"name": "background", "beta": -1}}, "beta must be at least 0"),
    ({"admission": {"name": "background", "beta": 0.5, "delay": 0}}, "delay must be at least 1"),
    ({"fallback": "substitute"}, "fallback: unknown value 'substitute'"),
    ({"scope": "model"}, "scope: unknown value 'model'"),
    ({"upload_cap": 0}, "upload_cap must be at least 1"),
    (rule("substitute_all"), "its cache would never change"),
    ({**rule("substitute_all"), **admission(float("inf"))}, "its cache would never change"),
    ({**rule("substitute_all"), **admission("inf")}, "its cache would never change"),
    ({**rule("cache_prior", **{"lambda": 1, "J": 0}), "weights": {"name": "inherit"}}, "inherit is not defined for a re-routing rule"),
    ({**rule("max_rank", J=0, M=8), "weights": {"name": "inherit"}}, "inherit is not defined for a re-routing rule"),
]


@pytest.mark.parametrize("changes", ALLOWED, ids=str)
def test_allowed(changes: dict[str, Any]) -> None:
    validate({**GOOD, **changes}, MODEL, 8)


@pytest.mark.parametrize(("changes", "line"), REFUSED, ids=str)
def test_refused(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        validate({**GOOD, **changes}, MODEL, 8)
    message = str(caught.value)
    assert line in message and "policy 'mine'" in message and "\n" not in message and len(message) < 250


@pytest.mark.parametrize(("model", "capacity", "changes", "line"), [
    (MODEL, 3, {}, "capacity C = 3 must be between K = 4 and E = 16"),
    (MODEL, 17, {}, "capacity C = 17 must be between K = 4 and E = 16"),
    (BIASED, 8, rule("score_margin", alpha=0.1), "score_margin is not defined for a model with a selection bias"),
    (BIASED, 8, rule("cache_prior", **{"lambda": 1, "J": 0}), "cache_prior is not defined for a model with a selection bias"),
    (GROUPED, 8, rule("cache_prior", **{"lambda": 1, "J": 0}), "cache_prior is not defined for a model with group limits"),
    ({**GROUPED, "groups": {"count": 8, "allowed": 1, "score": "max"}}, 8, {}, "fewer than top_k = 4"),
    ({**GROUPED, "groups": {"count": 5, "allowed": 1, "score": "max"}}, 8, {}, "does not divide experts"),
    ({**MODEL, "depth": 4}, 8, rule("score_margin", alpha=0.1), "record the trace with depth M > K"),
    ({**MODEL, "depth": 6}, 8, rule("max_rank", J=0, M=8), "M is larger than the number of ranks that are known"),
    ({**GROUPED, "depth": 6}, 8, {}, "a group-limited model needs every allowed expert ranked"),
])  # fmt: skip
def test_refused_for_this_model(model: dict[str, Any], capacity: int, changes: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        validate({**GOOD, **changes}, model, capacity)
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_bias_and_groups_allow_the_other_rules() -> None:
    for model in (BIASED, GROUPED):
        for changes in (rule("threshold", tau=0.1), rule("max_rank", J=0, M=8), rule("drop_cold", F=0.5)):
            validate({**GOOD, **changes}, model, 8)
    validate({**GOOD, **rule("score_margin", alpha=0.1)}, GROUPED, 8)
