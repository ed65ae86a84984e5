"""Reuse distance: how far apart two requests of one expert are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Distances = NDArray[np.int64]


def reuse_distances(ids: NDArray[np.intp], experts: int) -> tuple[Distances, Distances]:
    """Distances of every request to the previous request of the same expert, in streams that start cold.

    The order of requests is serial: by token, within a token by rank. The stack distance is the number of *distinct other* experts
    requested in between, so that a serial LRU cache of C experts holds the expert exactly when it is < C (Mattson et al. 1970).
    The policies' steps answer all calls of a token at once, so their hit rates are near that curve and not on it.

    Args:
        ids: [D, T, K] requested experts of D independent streams, distinct within a token.
        experts: E.

    Returns:
        Stack distance and distance in tokens, both [D, T, K]; -1 for the first request of an expert.
    """
    streams, tokens, top_k = ids.shape
    stack = np.empty(ids.shape, dtype=np.int64)
    in_tokens = np.empty(ids.shape, dtype=np.int64)
    last = np.full((streams, experts), -1, dtype=np.int32)
    every = np.arange(streams)
    for token in range(tokens):
        for rank in range(top_k):
            expert = ids[:, token, rank]
            before = last[every, expert]
            cold = before < 0
            stack[:, token, rank] = np.where(cold, -1, (last > before[:, None]).sum(axis=1))
            in_tokens[:, token, rank] = np.where(cold, -1, token - before // top_k)
            last[every, expert] = token * top_k + rank
    return stack, in_tokens
