"""Section "State": pools, their counters, the three starts; and the draws, which carry no state.

A key is always (layer, expert). With scope `layer` there is one pool per layer, with scope `global` one for all.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

Key = tuple[int, int]
MASK = (1 << 64) - 1


def finalise(x: int) -> int:
    """SplitMix64's output function (Steele, Lea and Flood 2014): golden gamma, then two multiply-xorshifts."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def draw(seed: int, *values: int) -> int:
    """64 bits that depend on (seed, values) alone."""
    h = finalise(seed & MASK)
    for value in values:
        h = finalise(h ^ (value & MASK))
    return h


@dataclass
class Pool:
    """`entered` holds the residents R. `last`, `freq`, `A` exist for every expert, resident or not (absent: the start value)."""

    capacity: int
    entered: dict[Key, int] = field(default_factory=dict)
    insertions: int = 0
    last: dict[Key, int] = field(default_factory=dict)
    freq: dict[Key, float] = field(default_factory=dict)
    A: dict[Key, float] = field(default_factory=dict)
    Q: list[tuple[Key, int]] = field(default_factory=list)
    # for the meters only; no decision reads these
    ever_resident: set[Key] = field(default_factory=set)
    hit_since_entry: set[Key] = field(default_factory=set)
    evicted_unused: set[Key] = field(default_factory=set)
    last_substituted: dict[Key, int] = field(default_factory=dict)

    def insert(self, key: Key, in_cache_freq: bool) -> None:
        """Make a key resident; `entered` grows, and the in-cache frequency starts at 0."""
        assert key not in self.entered and len(self.entered) < self.capacity
        self.entered[key] = self.insertions
        self.insertions += 1
        if in_cache_freq:
            self.freq[key] = 0.0
        self.ever_resident.add(key)
        self.hit_since_entry.discard(key)
        self.evicted_unused.discard(key)

    def evict(self, key: Key) -> bool:
        """Remove a resident; true when it had no hit since it entered."""
        del self.entered[key]
        unused = key not in self.hit_since_entry
        if unused:
            self.evicted_unused.add(key)
        return unused

    def in_queue(self, key: Key) -> bool:
        """Whether an entry of Q is for this key."""
        return any(waiting == key for waiting, _ in self.Q)


def insertion_orders(
    kind: str, scope: str, layers: int, experts: int, capacity: int, counts: Sequence[Sequence[int]] | None, seed: int
) -> list[list[Key]]:
    """Insertion order per pool of the starts `warm` (counts [L][E] of the calibration split), `cold`, `random(seed)`."""
    if kind == "cold":
        return [[] for _ in range(layers)] if scope == "layer" else [[]]
    chosen: list[list[Key]] = []
    for layer in range(layers):
        keys = [(layer, expert) for expert in range(experts)]
        if kind == "warm":
            assert counts is not None
            row = counts[layer]
            keys.sort(key=lambda key: (row[key[1]], -key[1]))
        else:
            keys.sort(key=lambda key: (draw(seed, *key), key[1]))
        chosen.append(keys[experts - capacity :])
    if scope == "layer":
        return chosen
    together = [key for keys in chosen for key in keys]
    if kind == "warm":
        assert counts is not None
        together.sort(key=lambda key: (counts[key[0]][key[1]], -key[0], -key[1]))
    else:
        together.sort(key=lambda key: (draw(seed, *key), key))
    return [together]


def insertion_digest(orders: Sequence[Sequence[Key]]) -> str:
    """SHA-256 of the insertion order as little-endian uint16 pairs (layer, expert), pool by pool."""
    return hashlib.sha256(b"".join(struct.pack("<HH", *key) for order in orders for key in order)).hexdigest()
