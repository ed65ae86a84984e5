"""A row of the batch: one policy at one capacity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One policy at one capacity with one seed; every document is run once per row.

    Attributes:
        name: the policy's name.
        policy: its configuration as a plain dict.
        capacity: C, resident experts per layer.
        seed: of ``initial: random``, and of choosers that name none.
    """

    name: str
    policy: dict[str, Any]
    capacity: int
    seed: int = 0
