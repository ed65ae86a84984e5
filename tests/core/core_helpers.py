"""Tiny ranked traces and policies for the tests of the policy core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expertmiss import _core

HIT, FETCH, SUBSTITUTE, DROP, FALLBACK_FETCH, FALLBACK_DROP = range(6)


def meta(experts: int, top_k: int, layers: int = 1, **changes: Any) -> dict[str, Any]:
    """Metadata of a softmax model that normalises."""
    plain = {"gating": "softmax", "normalise": True, "scale": 1.0, "bias": None, "groups": None}
    return {"layers": layers, "experts": experts, "top_k": top_k, **plain, **changes}


def policy(
    rule: str = "fetch_all", *, eviction: Any = "lru", admission: Any = "fetched_only", initial: str = "cold", **changes: Any
) -> dict[str, Any]:
    """A policy; ``eviction`` and ``admission`` by name or as a dict; ``tau=...`` and the like go to the rule."""
    sections = ("chooser", "weights", "fallback", "update", "scope", "state", "upload_cap", "name")
    parameters = {key: changes.pop(key) for key in list(changes) if key not in sections}
    return {
        "name": rule,
        "miss_rule": {"name": rule, **parameters},
        "eviction": {"name": eviction} if isinstance(eviction, str) else eviction,
        "admission": {"name": admission} if isinstance(admission, str) else admission,
        "initial": initial,
        **changes,
    }


def logits_of(requests: Sequence[Sequence[int]], experts: int, weights: Sequence[float] | None = None) -> NDArray[np.float32]:
    """[T, E] logits that rank each row's experts first, in the given order, then all others by id.

    ``weights``: gate weights of the listed experts (their logarithms become the logits); all others lie far below.
    """
    rows = []
    for listed in requests:
        order = [*listed, *(expert for expert in range(experts) if expert not in listed)]
        z = np.empty(experts)
        z[order] = -20.0 - np.arange(experts)
        z[list(listed)] = -0.1 * np.arange(len(listed)) if weights is None else np.log(weights)
        rows.append(z)
    return np.asarray(rows, dtype=np.float32)


def ranked(z: NDArray[np.float32], about: dict[str, Any], depth: int | None = None, layer: int = 0) -> _core.Layer:
    """One layer of a trace, of full depth unless told otherwise."""
    groups, bias = about["groups"], about["bias"]
    full = about["experts"] if groups is None else about["experts"] // groups["count"] * groups["allowed"]
    row = None if bias is None else np.asarray(bias[layer], dtype=np.float64)
    return _core.rank_logits(z, depth or full, top_k=about["top_k"], gating=about["gating"], bias=row, groups=groups)


def run(
    z: NDArray[np.float32],
    about: dict[str, Any],
    chosen: dict[str, Any],
    capacity: int,
    *,
    document: Sequence[int] | None = None,
    **options: Any,
) -> Any:
    """Simulate logits [T, E] (one layer) or [L, T, E] with log and invariants on."""
    layers = z[None] if z.ndim == 2 else z
    tokens = layers.shape[1]
    documents = np.zeros(tokens, np.int32) if document is None else np.asarray(document, dtype=np.int32)
    depth = options.pop("depth", None)
    trace = [ranked(np.ascontiguousarray(rows), about, depth, layer) for layer, rows in enumerate(layers)]
    options = {"log": True, "check": True, **options}
    return _core.simulate(trace, documents, about, chosen, capacity, **options)


def totals(result: Any) -> dict[str, float]:
    """Meters summed over segments and layers."""
    return {name: values.sum().item() for name, values in result["meters"].items()}


def victims(result: Any) -> list[int]:
    """Victims of the fetches in serial order, -1 where there was room; hits left out."""
    calls = result["log"]["calls"]
    return calls["victim"][calls["verdict"] == FETCH].tolist()


def random_logits(seed: int, layers: int, tokens: int, experts: int) -> NDArray[np.float32]:
    """[L, T, E] logits with popular experts and recency, so that caches have something to do."""
    rng = np.random.default_rng(seed)
    popular = rng.normal(size=(layers, 1, experts))
    drift = np.cumsum(rng.normal(size=(layers, tokens, experts)) * 0.3, axis=1)
    return np.asarray(popular + drift + rng.normal(size=(layers, tokens, experts)) * 0.5, dtype=np.float32)


def counts_of(z: NDArray[np.float32], top_k: int) -> NDArray[np.int64]:
    """[L, E] request counts of logits [L, T, E]."""
    experts = z.shape[2]
    return np.stack(
        [_core.request_counts(_core.rank_logits(np.ascontiguousarray(rows), top_k, top_k=top_k)[0], top_k, experts) for rows in z]
    )
