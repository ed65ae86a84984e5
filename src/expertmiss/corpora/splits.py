"""Which split a source belongs to: packages by their annotation, generator templates by the hash of their id.

A source (package or template) lies in exactly one split. Adding packages or templates moves none of the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from expertmiss.corpora.generators import GENERATORS, HARDER, Template

_SHARES = {"exploratory": 0.10, "pilot": 0.06, "calibration": 0.06, "confirmatory": 0.10, "generation": 0.10, "train": 0.58}


def hashed_split(name: str, shares: Mapping[str, float]) -> str:
    """The split of a name: its SHA-256 read as a number in [0, 1), placed among the cumulated shares (which add up to 1)."""
    position = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64
    for split, share in shares.items():
        if position < share:
            return split
        position -= share
    return list(shares)[-1]  # rounding of the sum


def template_split(template_id: str) -> str:
    """The split of a generator template."""
    return hashed_split(template_id, _SHARES)


def split_templates(domain: str, split: str, *, harder: bool = False) -> list[Template]:
    """The templates of one generated domain in one split, in the order of their ids' hashes (so that any prefix is a mixture).

    ``harder``: with those that stand in no document.
    """
    every = GENERATORS[domain]() + (HARDER[domain]() if harder and domain in HARDER else [])
    chosen = [template for template in every if template_split(template.id) == split]
    return sorted(chosen, key=lambda template: hashlib.sha256(f"order/{template.id}".encode()).digest())
