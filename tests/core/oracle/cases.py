"""Hypothesis strategies: a model, a policy, a capacity and a stream of router logits, with adversarial shapes among them.

Sizes, options and a flavour are drawn by hypothesis (so that failures shrink); the logits come from a numpy generator seeded
by a drawn integer, which is fast enough for thousands of cases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from expertmiss import _core

from .defaults import policy
from .rules import score_ratio
from .scores import Model, View

RULES = (
    "fetch_all",
    "substitute_all",
    "first_choice",
    "threshold",
    "cumulative",
    "score_margin",
    "cache_prior",
    "max_rank",
    "drop_cold",
)
EVICTIONS: dict[str, dict[str, Any]] = {
    "lru": {"name": "lru"},
    "fifo": {"name": "fifo"},
    "lfu_lifetime": {"name": "lfu", "variant": "lifetime"},
    "lfu_in_cache": {"name": "lfu", "variant": "in_cache"},
    "lfu_half_life": {"name": "lfu", "variant": "half_life", "half_life": 2},
    "lfru": {"name": "lfru"},
}
ADMISSIONS = ("fetched_only", "every_miss", "background")
FLAVOURS = ("normal", "sticky", "ties", "equal", "negative", "large", "huge", "near_ties", "hot")
HOT = (127, 128, 255, 256, 511)


@dataclass(frozen=True)
class Case:
    """Inputs of one run. z: float32 [T, L, E]; documents: [T]; counts: [L][E]; seed of the start."""

    model: Model
    policy: dict[str, Any]
    capacity: int
    z: np.ndarray
    documents: list[int]
    counts: list[list[int]]
    seed: int


def logits(flavour: str, seed: int, T: int, L: int, E: int) -> np.ndarray:
    """float32 [T, L, E]."""
    rng = np.random.default_rng(seed)
    z: np.ndarray = rng.normal(size=(T, L, E)) * 2
    if flavour == "sticky":  # a topic that drifts: the cache is worth having
        z = np.cumsum(rng.normal(size=(T, L, E)), axis=0)
    elif flavour == "ties":
        z = np.round(z)
    elif flavour == "equal":
        z = np.zeros_like(z) + np.round(rng.normal(size=(T, L, 1)))
    elif flavour == "negative":
        z = -40 - np.abs(z)
    elif flavour == "large":
        z = z * 1e4
    elif flavour == "huge":
        z = z * 1e37
    elif flavour == "near_ties":  # one unit in the last place of float32 apart: distinct z, often equal rounded p
        z = np.float32(1.0) + rng.integers(0, 4, size=(T, L, E)) * np.float32(2.0**-23)
    elif flavour == "hot":
        hot = [expert for expert in HOT if expert < E] or [0, E - 1]
        z[:, :, hot] += rng.integers(0, 3, size=(T, L, len(hot))) * 3.0
    return z.astype(np.float32)


def rules(name: str, K: int, E: int) -> st.SearchStrategy[dict[str, Any]]:
    """A rule's own parameters, many of them on the boundary that exact ties hit."""
    share = st.sampled_from([0.0, 1.0 / K, 0.15, 1.5 / K, 0.5, 1.0, float("inf")]) | st.floats(0, 1)
    if name == "threshold":
        return st.fixed_dictionaries({"tau": share})
    if name == "cumulative":
        return st.tuples(share, share).map(lambda pair: {"T1": min(pair), "T2": max(pair)})
    if name == "score_margin":
        return st.fixed_dictionaries({"alpha": st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0]) | st.floats(0, 1)})
    if name == "cache_prior":
        lam = st.sampled_from([0.0, 0.1, 0.5, 1.0]) | st.floats(0, 2)
        return st.fixed_dictionaries({"lambda": lam, "J": st.integers(0, K)})
    if name == "max_rank":
        return st.fixed_dictionaries({"J": st.integers(0, K), "M": st.integers(K, min(E, 2 * K + 2))})
    if name == "drop_cold":
        return st.fixed_dictionaries({"F": st.sampled_from([0.0, 0.5, 1.0, 1.5]) | st.floats(0, 3)})
    return st.just({})


def on_a_boundary(name: str, view: View, rng: np.random.Generator) -> dict[str, Any]:
    """Parameters that one step of the stream meets exactly: a weight, a sum of weights, a ratio of scores."""
    K = view.model.top_k
    at = sorted(rng.integers(0, K, size=2).tolist())
    if name == "threshold":
        return {"tau": view.w[view.S[at[1]]]}
    if name == "drop_cold":
        return {"F": view.w[view.S[at[1]]] * K}
    if name == "cumulative":
        sums = [0.0]
        for expert in view.S:
            sums.append(sums[-1] + view.w[expert])
        return {"T1": sums[at[0]], "T2": sums[at[1]]}
    if name == "score_margin" and len(view.order) > K:
        ratio, unit = score_ratio(view, view.order[int(rng.integers(0, min(len(view.order), K + 4)))])
        if unit > 0 and ratio / unit < 1e9:
            return {"alpha": abs(ratio / unit - 1.0)}
    return {}


@st.composite
def cases(
    draw: st.DrawFn,
    /,
    rule: str | None = None,
    eviction: str | None = None,
    admission: str | None = None,
    experts: int | None = None,
    tokens: int = 24,
    **fixed: Any,
) -> Case:
    """Anything the page allows; `rule`, `eviction`, `admission`, `experts` and keys of the policy can be pinned."""
    name = rule or draw(st.sampled_from(RULES))
    E = experts or draw(st.sampled_from([2, 3, 4, 5, 6, 8, 8, 10, 12, 12, 16, 24]))
    K = draw(st.integers(1, min(E, 10)))
    C = draw(st.just(K) | st.integers(K, min(E, K + max(1, E // 3))) | st.integers(K, E))
    L = draw(st.sampled_from([1, 2, 2, 3])) if E < 100 else 1
    T = draw(st.sampled_from([1, 2, 5, tokens // 2, tokens, tokens, tokens]))

    # Group limits and biases only where the rule allows them.
    gating = draw(st.sampled_from(["softmax", "softmax", "sigmoid", "softmax_after_topk"]))
    flavour = draw(st.sampled_from([*FLAVOURS, "sticky", "sticky", "ties"]))
    if gating == "sigmoid" and flavour in ("large", "huge"):
        flavour = "normal"  # all-zero sums are refused; tested on their own
    bias_kind = "none" if name in ("score_margin", "cache_prior") else draw(st.sampled_from(["none", "none", "none", "noise", "steps"]))
    groups = None
    counts_of_groups = [g for g in (2, 4) if E % g == 0 and E // g >= 1 and E >= 4]
    if name != "cache_prior" and counts_of_groups and draw(st.integers(0, 4)) == 0:
        count = draw(st.sampled_from(counts_of_groups))
        fewest = -(-K * count // E)
        groups = {"count": count, "allowed": draw(st.integers(fewest, count)), "score": draw(st.sampled_from(["max", "top2_sum"]))}
    data_seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng([data_seed, 1])
    bias = None
    if bias_kind != "none":
        values = rng.normal(size=(L, E)) * 0.1
        bias = (np.round(values, 1) if bias_kind == "steps" else values.astype(np.float32).astype(float)).tolist()
    normalise = gating == "softmax_after_topk" or draw(st.integers(0, 3)) > 0
    model = Model(L, E, K, gating, normalise, bias, groups, draw(st.sampled_from([1.0, 1.0, 2.5])))

    changes: dict[str, Any] = {"miss_rule": draw(rules(name, K, E))}
    seed = draw(st.integers(0, 2**63 - 1))
    chooser = draw(st.sampled_from(["router_rank", "router_rank", "random", "matched_random"]))
    changes["chooser"] = {"name": chooser} | ({"seed": seed} if chooser != "router_rank" else {})
    if chooser == "matched_random":
        changes["chooser"]["margin"] = draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, 1e9]))
    conventions = ["own", "own", "scaled"] + ([] if name in ("cache_prior", "max_rank") else ["inherit"])
    weights = draw(st.sampled_from(conventions))
    changes["weights"] = {"name": weights} | ({"a": draw(st.sampled_from([0.25, 0.5, 1.0, 1.5]))} if weights == "scaled" else {})
    evictions = [*EVICTIONS, *(["opt"] if name == "fetch_all" else [])]
    which = eviction or draw(st.sampled_from(evictions))
    changes["eviction"] = {"name": "opt"} if which == "opt" else dict(EVICTIONS[which])
    if which == "lfu_half_life":
        changes["eviction"]["half_life"] = draw(st.sampled_from([1, 2, 3, 128]))
    admissions = ADMISSIONS[1:] if name == "substitute_all" else ADMISSIONS
    how = admission or draw(st.sampled_from(admissions))
    changes["admission"] = {"name": how}
    if how == "background":
        changes["admission"]["beta"] = draw(st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0]))
        changes["admission"]["delay"] = draw(st.sampled_from([1, 1, 2, 3, 7, 40]))
    changes["fallback"] = draw(st.sampled_from(["fetch", "drop"]))
    changes["update"] = draw(st.sampled_from(["requests", "requests", "executed"]))
    changes["scope"] = draw(st.sampled_from(["layer", "layer", "global"]))
    changes["state"] = draw(st.sampled_from(["reset", "carry"]))
    changes["initial"] = draw(st.sampled_from(["warm", "warm", "cold", "random"]))
    changes["upload_cap"] = draw(st.sampled_from([None, None, 1, 2]))
    changes.update(fixed)

    z = logits(flavour, data_seed, T, L, E)
    if draw(st.booleans()):
        layer = int(rng.integers(0, L))
        view = View(model, layer, z[rng.integers(0, T), layer].tolist(), _core.exp)
        changes["miss_rule"] |= on_a_boundary(name, view, rng)
        if how == "background" and "admission" not in fixed:
            changes["admission"]["beta"] = view.w[view.S[-1]] * draw(st.sampled_from([1, 2]))
    first, length = draw(st.sampled_from([0, 1, 70000])), draw(st.sampled_from([T, 1, 3, 8, T // 2 + 1]))
    again = draw(st.sampled_from([10**6, 2]))  # 2: ids alternate between two, so one comes back
    documents = [first + token // length % again for token in range(T)]
    high = draw(st.sampled_from([1, 3, 1000, 2**40]))  # 1: all counts equal, ids decide
    counts = rng.integers(0, high, size=(L, E)).tolist()
    return Case(model, policy(name, **changes), C, z, documents, counts, seed)
