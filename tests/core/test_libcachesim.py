"""K = 1 streams against an independent cache simulator (libCacheSim), hit by hit."""

from __future__ import annotations

from typing import Any

import libcachesim
import numpy as np
import pytest
from core_helpers import HIT, logits_of, meta, policy, run
from numpy.typing import NDArray

EXPERTS, TOKENS = 40, 3000


def zipf_stream(seed: int) -> NDArray[np.int64]:
    """Popular experts whose popularity moves, so that the policies differ."""
    rng = np.random.default_rng(seed)
    popularity = 1.0 / np.arange(1, EXPERTS + 1)
    parts = [rng.choice(rng.permutation(EXPERTS), size=TOKENS // 5, p=popularity / popularity.sum()) for _ in range(5)]
    return np.concatenate(parts)


def hits_elsewhere(cache: Any, stream: NDArray[np.int64]) -> list[bool]:
    """Next uses are filled in for Belady: 1-based positions, the largest int64 for never."""
    following: dict[int, int] = {}
    next_use = [0] * len(stream)
    for position in range(len(stream) - 1, -1, -1):
        next_use[position] = following.get(int(stream[position]), 2**63 - 1)
        following[int(stream[position])] = position + 1
    hits = []
    for position, expert in enumerate(stream.tolist()):
        request = libcachesim.Request(obj_id=expert + 1, obj_size=1, next_access_vtime=next_use[position])
        hits.append(bool(cache.get(request)))
    return hits


@pytest.mark.parametrize("capacity", [1, 2, 5, 13, 39])
@pytest.mark.parametrize(("eviction", "other"), [
    ("lru", libcachesim.LRU),
    ("fifo", libcachesim.FIFO),
    ({"name": "lfu", "variant": "in_cache"}, libcachesim.LFU),
    ("opt", libcachesim.Belady),
], ids=["lru", "fifo", "lfu", "belady"])  # fmt: skip
def test_same_hits(eviction: Any, other: Any, capacity: int) -> None:
    stream = zipf_stream(capacity)
    result = run(logits_of(stream[:, None].tolist(), EXPERTS), meta(EXPERTS, 1), policy(eviction=eviction), capacity)
    ours = (result["log"]["calls"]["verdict"] == HIT).tolist()
    assert ours == hits_elsewhere(other(cache_size=capacity, hashpower=10), stream)
    assert 0 < sum(ours) < len(ours)
