"""Belady against brute force, and against every other lossless policy."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from core_helpers import logits_of, meta, policy, run, totals
from hypothesis import given, settings
from hypothesis import strategies as st

LOSSLESS: list[Any] = ["lru", "fifo", "lfru", *({"name": "lfu", "variant": variant} for variant in ("lifetime", "in_cache", "half_life"))]


def fewest_misses(requests: list[list[int]], capacity: int) -> int:
    """Dynamic programming over all cache contents from an empty cache; a fetch may not evict what its token needs."""

    @cache
    def best(token: int, residents: frozenset[int]) -> int:
        if token == len(requests):
            return 0
        needed = frozenset(requests[token])
        missing = needed - residents
        surplus = max(0, len(residents) + len(missing) - capacity)
        return len(missing) + min(
            best(token + 1, (residents - set(gone)) | needed) for gone in combinations(sorted(residents - needed), surplus)
        )

    return best(0, frozenset())


def streams(experts: int, top_k: int, tokens: int) -> Any:
    step = st.lists(st.integers(0, experts - 1), min_size=top_k, max_size=top_k, unique=True)
    return st.lists(step, min_size=1, max_size=tokens)


def fetches(requests: list[list[int]], capacity: int, eviction: Any) -> float:
    top_k = len(requests[0])
    return totals(run(logits_of(requests, 6), meta(6, top_k), policy(eviction=eviction), capacity))["fetches"]


@settings(max_examples=80, deadline=None)
@given(streams(6, 1, 14), st.integers(1, 4))
def test_opt_is_optimal_for_single_requests(requests: list[list[int]], capacity: int) -> None:
    assert fetches(requests, capacity, "opt") == fewest_misses(requests, capacity)


@settings(max_examples=60, deadline=None)
@given(streams(6, 2, 10), st.integers(2, 4))
def test_opt_is_optimal_for_sets(requests: list[list[int]], capacity: int) -> None:
    assert fetches(requests, capacity, "opt") == fewest_misses(requests, capacity)


@settings(max_examples=60, deadline=None)
@given(streams(6, 2, 40), st.integers(2, 5))
def test_opt_is_never_worse(requests: list[list[int]], capacity: int) -> None:
    best = fetches(requests, capacity, "opt")
    for eviction in LOSSLESS:
        assert best <= fetches(requests, capacity, eviction), eviction


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_opt_is_better_where_it_can_be(scope: str) -> None:
    # a loop over one more expert than fits is LRU's worst case
    z = np.stack([logits_of([[token % 3] for token in range(30)], 6)] * 2)
    chosen = {name: policy(eviction=name, scope=scope) for name in ("lru", "opt")}
    got = {name: totals(run(z, meta(6, 1, layers=2), one, 2))["fetches"] for name, one in chosen.items()}
    assert got["lru"] == 60 and got["opt"] <= 34
