"""Experiment B's arms and the reference's residents, written down slowly and apart from the program: what its fast form is compared with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def ranked(z: Sequence[float]) -> list[int]:
    """Experts by falling logit, ties to the lower id."""
    return sorted(range(len(z)), key=lambda expert: (-float(z[expert]), expert))


def lru_schedule(z: Any, top_k: int, start: Sequence[int]) -> list[set[int]]:
    """Residents before each token's fetches under fetch_all and LRU, from residents in order of insertion."""
    entered = {expert: place for place, expert in enumerate(start)}
    last = dict.fromkeys(range(z.shape[1]), -1)
    clock, found = len(start), []
    for token, row in enumerate(z):
        found.append(set(entered))
        wanted = ranked(row)[:top_k]
        for expert in wanted:
            if expert not in entered:
                victim = min((other for other in entered if other not in wanted), key=lambda other: (last[other], entered[other], other))
                del entered[victim]
                entered[expert] = clock
                clock += 1
        for expert in wanted:
            last[expert] = token
    return found


def walk(
    z: Any, top_k: int, residents: Sequence[set[int]], order: str, mu: float, light: float, heavy: float, *, forced: bool = False,
    key: Callable[[int, int], int] | None = None, pick: Callable[[int, int, int], int] | None = None,
) -> tuple[list[list[int]], list[list[float]], list[list[int]], list[float]]:  # fmt: skip
    """Token by token: executed experts, their weights (normalised), substituted ranks, substituted mass.

    ``key(token, rank)`` orders the random arm; ``pick(token, rank, n)`` is the random chooser's draw among n.
    """
    executed, weights, ranks_of, mass = [], [], [], []
    earned, spent = 0, 0.0
    for token, row in enumerate(z):
        earned += 1
        by_rank = ranked(row)
        chosen = by_rank[:top_k]
        total = math.fsum(math.exp(float(row[expert]) - float(row[chosen[0]])) for expert in chosen)
        w = [math.exp(float(row[expert]) - float(row[chosen[0]])) / total for expert in chosen]
        candidates = []
        for rank in range(1, top_k):
            if chosen[rank] in residents[token] and not forced:
                continue
            if (order in ("heavy", "random") and w[rank] >= heavy) or (order in ("light", "random") and w[rank] < light):
                candidates.append(rank)
        if order == "heavy":
            candidates = sorted(candidates, key=lambda rank: (-w[rank], rank))
        elif order == "light":
            candidates = sorted(candidates, key=lambda rank: (w[rank], rank))
        elif key is not None:
            candidates = sorted(candidates, key=lambda rank: key(token, rank))
        replaced = []
        for rank in candidates:
            if spent + w[rank] <= mu * earned:
                spent += w[rank]
                replaced.append(rank)
        line, taken = list(chosen), set()
        for rank in sorted(replaced):
            free = [expert for expert in by_rank if expert in residents[token] and expert not in chosen and expert not in taken]
            line[rank] = free[0] if pick is None else sorted(free)[pick(token, rank, len(free))]
            taken.add(line[rank])
        scores = [math.exp(float(row[expert]) - max(float(row[other]) for other in line)) for expert in line]
        executed.append(line)
        weights.append([score / math.fsum(scores) for score in scores])
        ranks_of.append(sorted(replaced))
        mass.append(math.fsum(w[rank] for rank in replaced))
    return executed, weights, ranks_of, mass


def flags(residents: Sequence[set[int]], experts: int) -> Any:
    """[T, E] of sets."""
    found = np.zeros((len(residents), experts), dtype=bool)
    for token, members in enumerate(residents):
        found[token, sorted(members)] = True
    return found
