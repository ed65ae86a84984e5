"""Agreement of two free-running forms of the same policy: the first different decision of every layer, and whether it was a near-tie.

The two forms differ by floating-point rounding, a few 1e-6 in the router logits. A near-tie may then fall the other way, and what follows from
it (the state of the cache, all later layers and tokens) differs by more than rounding. So per layer only the first difference is judged, and only if
no earlier one can have caused it: none in a lower layer at this token or before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

COLUMNS = ("expert", "verdict", "substitute", "victim")


@dataclass(frozen=True)
class FirstDifference:
    """Where a layer's decisions first differ.

    Attributes:
        layer, token: place.
        follows: a lower layer differed at this token or before, so that the inputs were different; not judged.
        margin: how much the router's logits have to change for one decision to become the other, as far as ties of ranks or of a rule's
            own threshold explain it; infinite for no such tie.
    """

    layer: int
    token: int
    follows: bool
    margin: float


def eps(one: Sequence[Any], other: Sequence[Any]) -> float:
    """Largest difference between the router logits of two runs, each ``Decisions.logits``: to be taken under forced decisions."""
    return max(float(np.abs(a[0].astype(np.float64) - b[0]).max()) for a, b in zip(one, other, strict=True))


def first_differences(
    one: Mapping[str, NDArray[Any]], other: Mapping[str, NDArray[Any]], logits: Sequence[NDArray[Any]], policy: Mapping[str, Any]
) -> list[FirstDifference]:
    """Compare the call logs of one document under one policy.

    Args:
        one, other: the ``calls`` of :meth:`~expertmiss.emulate.emulator.Emulator.take_logs`.
        logits: [T, E] router logits of ``one``, by layer.
        policy: its configuration.

    Returns:
        at most one difference a layer. A different order among calls that are answered alike is none.
    """
    found: list[FirstDifference] = []
    mine, theirs = _by_layer(one), _by_layer(other)
    for layer, z in enumerate(logits):
        differs = (mine[layer] != theirs[layer]).any(axis=(1, 2))
        if not differs.any():
            continue
        token = int(np.argmax(differs))
        follows = any(earlier.token <= token for earlier in found)
        experts = _involved(mine[layer][token], theirs[layer][token])
        found.append(
            FirstDifference(layer, token, follows, _margin(z[: token + 1].astype(np.float64), experts, policy, mine[layer].shape[1]))
        )
    return found


def _by_layer(calls: Mapping[str, NDArray[Any]]) -> list[NDArray[np.int64]]:
    """[T, K, 4] by layer: the columns of every call, calls in ascending expert id."""
    order = np.lexsort((calls["expert"], calls["t"], calls["layer"]))
    layers, tokens = int(calls["layer"].max()) + 1, int(calls["t"].max()) + 1
    table = np.stack([calls[column][order].astype(np.int64) for column in COLUMNS], axis=1)
    return list(table.reshape(layers, tokens, -1, len(COLUMNS)))


def _involved(mine: NDArray[np.int64], theirs: NDArray[np.int64]) -> list[int]:
    """Experts and substitutes of the calls that only one side made in this way."""
    left, right = {tuple(call) for call in mine.tolist()}, {tuple(call) for call in theirs.tolist()}
    return sorted({expert for call in left ^ right for expert in (call[0], call[2]) if expert >= 0})


def _margin(z: NDArray[np.float64], experts: list[int], policy: Mapping[str, Any], top_k: int) -> float:
    """Smallest distance to a tie at the last row of ``z``: between two of ``experts``, or of one of them and its rule's threshold."""
    now, rule = z[-1], policy["miss_rule"]
    gaps = [abs(now[a] - now[b]) for index, a in enumerate(experts) for b in experts[:index]]
    ranked = np.sort(now)[::-1]
    log_w = now - ranked[0] - math.log(np.exp(ranked[:top_k] - ranked[0]).sum())
    bounds = {"threshold": rule.get("tau"), "drop_cold": rule.get("F", 0.0) / top_k}
    if rule["name"] in bounds:
        bound = float(bounds[rule["name"]])
        if 0 < bound < math.inf:
            gaps.extend(abs(log_w[expert] - math.log(bound)) for expert in experts)
    elif rule["name"] == "score_margin" and len(now) > top_k:
        for factor in (1 + rule["alpha"], 1 - rule["alpha"]):
            if factor > 0:
                gaps.extend(abs(now[expert] - ranked[top_k] - math.log(factor)) for expert in experts)
    elif rule["name"] == "cache_prior":
        bonus = rule["lambda"] * float(np.mean(z.max(axis=1) - z.min(axis=1)))
        gaps.extend([abs(gap - bonus) for gap in gaps])
    return float(min(gaps, default=math.inf))
