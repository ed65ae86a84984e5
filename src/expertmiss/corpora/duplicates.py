"""Near-duplicate removal: the share of a text's hashed word shingles that were seen before.

A shingle is ``WORDS`` consecutive words. Its 64-bit hash is kept when it falls in a fixed 1/``SAMPLING`` of the hash range (the
fraction-sampled MinHash sketch: containment estimated from a sample that is the same in every text). Deterministic: no seed, no
dependence on Python's string hashing.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from functools import lru_cache

import numpy as np
import numpy.typing as npt

WORDS = 8
SAMPLING = 4
_WORD = re.compile(r"\w+")
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@lru_cache(maxsize=1_000_000)
def _word_hash(word: str) -> int:
    data = word.encode()
    return zlib.crc32(data) << 32 | zlib.crc32(data[::-1], 0x5BD1E995)


def shingles(text: str) -> npt.NDArray[np.uint64]:
    """Sampled 64-bit hashes (sorted, distinct) of the shingles of ``text``; empty for fewer than ``WORDS`` words."""
    words = np.array([_word_hash(word) for word in _WORD.findall(text.lower())], dtype=np.uint64)
    if len(words) < WORDS:
        return np.empty(0, dtype=np.uint64)
    windows = np.lib.stride_tricks.sliding_window_view(words, WORDS)
    hashes = np.zeros(len(windows), dtype=np.uint64)
    for column in range(WORDS):  # a polynomial hash modulo 2^64
        hashes = (hashes ^ (hashes >> np.uint64(29))) * _MULTIPLIER + windows[:, column]
    hashes ^= hashes >> np.uint64(32)
    return np.unique(hashes[hashes % np.uint64(SAMPLING) == 0])


class SeenText:
    """Everything accepted so far; ``admit`` says whether a text is new enough and, if so, remembers it.

    Args:
        threshold: largest admissible share (0 to 1) of a text's sampled shingles that were seen before.
    """

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self._seen: set[int] = set()

    def overlap(self, text: str) -> float:
        """Share of the text's sampled shingles seen before (0 for a text too short to have any)."""
        hashes = shingles(text).tolist()
        return sum(value in self._seen for value in hashes) / len(hashes) if hashes else 0.0

    def admit(self, text: str) -> bool:
        """True, and the text is remembered, if its overlap is at most the threshold."""
        hashes = shingles(text).tolist()
        if sum(value in self._seen for value in hashes) > self.threshold * len(hashes):
            return False
        self._seen.update(hashes)
        return True


class SeenBlocks:
    """Removes paragraphs (licences, boilerplate) of at least ``length`` characters that stood in an earlier text, exactly."""

    def __init__(self, length: int = 200) -> None:
        self.length = length
        self._seen: set[bytes] = set()

    def strip(self, text: str) -> str:
        """The text without repeated paragraphs; its new paragraphs are remembered."""
        kept = []
        for block in text.split("\n\n"):
            if len(block) >= self.length:
                digest = hashlib.blake2b(block.encode(), digest_size=8).digest()
                if digest in self._seen:
                    continue
                self._seen.add(digest)
            kept.append(block)
        return "\n\n".join(kept)
