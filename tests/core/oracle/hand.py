"""Helpers of the hand-worked cases: one layer, one document, a warm start with counts that rise with the id.

Capacity C therefore starts with the C highest ids, entered in rising order.
"""

from __future__ import annotations

import math
from typing import Any

from .run import Result, simulate
from .scores import Model


def ranked(experts: int, *order: int) -> list[float]:
    """Logits whose rank order starts with `order`, one apart; the others follow by id, far below."""
    z = [-10.0 - expert for expert in range(experts)]
    for rank, expert in enumerate(order):
        z[expert] = -float(rank)
    return z


def run(tokens: list[list[float]], chosen: dict[str, Any], top_k: int, capacity: int, **model: Any) -> Result:
    experts = len(tokens[0])
    return simulate(
        [[z] for z in tokens], [0] * len(tokens), Model(1, experts, top_k, **model), chosen, capacity, math.exp, [list(range(experts))]
    )


def rows(result: Result) -> list[tuple[int, int, int, int, int | None]]:
    """(t, expert, verdict, substitute, victim) of every call."""
    return [(c.t, c.expert, c.verdict, c.substitute, None if c.victim is None else c.victim[1]) for c in result.calls]
