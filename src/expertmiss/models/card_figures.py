"""Figures of a model card, from router logits and losses of equal-length documents."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from expertmiss.stats.reuse import reuse_distances

Logits = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


def ranked(logits: Logits, k: int) -> tuple[Ids, npt.NDArray[np.float64]]:
    """The K experts of each row of ``logits`` [T, E], best first (ties: lower id), and their weights normalised over the K: both [T, K]."""
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    chosen = np.take_along_axis(logits, ids, 1).astype(np.float64)
    weights = np.exp(chosen - chosen.max(1, keepdims=True))
    return ids, weights / weights.sum(1, keepdims=True)


def router_load(ids: Ids, experts: int) -> dict[str, float]:
    """Load of one layer's experts over ``ids`` [T, K].

    ``max_over_mean`` load; ``entropy`` of the load over ln E (1: uniform); ``unused`` share of experts never chosen.
    """
    counts = np.bincount(ids.reshape(-1), minlength=experts)
    share = counts / counts.sum()
    used = share[share > 0]
    return {
        "max_over_mean": float(counts.max() / counts.mean()),
        "entropy": float(-(used * np.log(used)).sum() / np.log(experts)),
        "unused": float((counts == 0).mean()),
    }


def warm_distances(ids: Ids, calibration: npt.NDArray[np.int64]) -> Ids:
    """Stack distances of every request of documents ``ids`` [D, T, K] that start warm: [D, T, K], none negative.

    A warm start is as if every expert had been requested once before the document, by rising count of requests in the calibration
    split ``calibration`` [E] (ties: higher id first), so that a cache of C holds the C most requested ones.
    """
    documents, _, k = ids.shape
    order = np.lexsort((-np.arange(len(calibration)), calibration))
    padding = -len(order) % k
    prefix = np.concatenate([order[:padding], order]).reshape(1, -1, k)
    stack, _ = reuse_distances(np.concatenate([np.repeat(prefix, documents, 0), ids], 1).astype(np.intp), len(calibration))
    return stack[:, prefix.shape[1] :]


def miss_rates(stack: Ids, capacities: dict[str, int]) -> dict[str, float]:
    """Share of requests with stack distance >= C, by the capacities' names: misses of a serial LRU cache that fetches every miss."""
    return {name: float((stack >= capacity).mean()) for name, capacity in capacities.items()}


def layer_figures(
    logits: list[Logits], domains: list[str], length: int, k: int, calibration: list[npt.NDArray[np.int64]]
) -> dict[str, Any]:
    """All router figures of documents whose rows follow one another.

    Args:
        logits: per layer [D * length, E].
        domains: domain of each of the D documents.
        length: tokens per document.
        k: experts per token.
        calibration: per layer, requests per expert [E] in the calibration split.
    """
    experts = logits[0].shape[1]
    capacities = {f"{share:.1%}".replace(".0%", "%"): max(k, round(share * experts)) for share in (0.125, 0.25, 0.5)}
    load, weights, stacks = [], [], []
    for layer, counts in zip(logits, calibration, strict=True):
        ids, weight = ranked(layer, k)
        load.append(router_load(ids, experts))
        weights.append(weight.mean(0))
        stacks.append(warm_distances(ids.reshape(len(domains), length, k), counts))
    stack = np.stack(stacks)
    of = np.array(domains)
    return {
        "router_load": load,
        "gate_weight_by_rank": np.mean(weights, 0).tolist(),
        "reuse_distance": dict(zip((f"{q:.0%}" for q in QUANTILES), np.quantile(stack, QUANTILES).tolist(), strict=True)),
        "capacities": capacities,
        "lru_miss_rate": {
            "all": miss_rates(stack, capacities),
            **{name: miss_rates(stack[:, of == name], capacities) for name in sorted(set(domains))},
        },
        "lru_miss_rate_by_layer": [miss_rates(layer, capacities) for layer in stack],
    }
