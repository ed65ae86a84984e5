"""Section "evictions": the victim among candidates, and how frequencies grow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from decimal import Decimal, localcontext
from functools import cache
from typing import Any

from .state import Key, Pool

NextUse = Callable[[Key], float]


def victim(eviction: dict[str, Any], pool: Pool, candidates: Iterable[Key], t: int, next_use: NextUse | None) -> Key:
    """The smallest of (eviction's own measure, last, entered, id). Raises ValueError when there is no candidate."""

    def measure(key: Key) -> float:
        name = eviction["name"]
        if name == "fifo":
            return pool.entered[key]
        if name == "lfu":
            return pool.freq.get(key, 0.0)
        if name == "lfru":
            return pool.freq.get(key, 0.0) / (t - pool.last.get(key, -1) + 1)
        if name == "opt":
            assert next_use is not None
            return -next_use(key)
        assert name == "lru"
        return pool.last.get(key, -1)

    return min(candidates, key=lambda key: (measure(key), pool.last.get(key, -1), pool.entered[key], key))


def counts_in_cache(eviction: dict[str, Any]) -> bool:
    """Whether freq is the in-cache count (0 on insertion, residents only)."""
    return bool(eviction["name"] == "lfru" or (eviction["name"] == "lfu" and eviction["variant"] == "in_cache"))


def _half_life(eviction: dict[str, Any]) -> int | None:
    return int(eviction.get("half_life", 128)) if eviction["name"] == "lfu" and eviction["variant"] == "half_life" else None


@cache
def half_life_table(h: int) -> tuple[float, ...]:
    """T[j] = float64 nearest to 2^(j/h), 0 <= j < h; conversion of a long decimal rounds once."""
    with localcontext() as context:
        context.prec = 80
        return tuple(float(Decimal(2) ** (Decimal(j) / Decimal(h))) for j in range(h))


def begin_token(eviction: dict[str, Any], pool: Pool, t: int) -> None:
    """Rescale at t = n h 512 (n >= 1): every count times 2^-512, then those below 2^-1000 of the increment become 0."""
    h = _half_life(eviction)
    if h is None or t == 0 or t % (512 * h) != 0:
        return
    for key, value in pool.freq.items():
        scaled = math.ldexp(value, -512)
        pool.freq[key] = 0.0 if scaled < 2.0**-1000 else scaled


def count_request(eviction: dict[str, Any], pool: Pool, key: Key, t: int) -> None:
    """Step 7 for one expert: `last` and the frequency."""
    pool.last[key] = t
    h = _half_life(eviction)
    if h is not None:
        # 2^floor(t/h) T[t mod h], divided by the 2^(512 n) that the counts have been divided by so far
        increment = math.ldexp(half_life_table(h)[t % h], (t // h) % 512)
        pool.freq[key] = pool.freq.get(key, 0.0) + increment
    elif not counts_in_cache(eviction) or key in pool.entered:
        pool.freq[key] = pool.freq.get(key, 0.0) + 1.0
