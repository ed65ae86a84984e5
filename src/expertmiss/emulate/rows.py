"""A row of the batch: one policy at one capacity."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from expertmiss.errors import UserError


@dataclass(frozen=True)
class Row:
    """One policy at one capacity with one seed; every document is run once per row.

    Attributes:
        name: the policy's name.
        policy: its configuration as a plain dict.
        capacity: C, resident experts per layer.
        seed: of ``initial: random``.
    """

    name: str
    policy: dict[str, Any]
    capacity: int
    seed: int = 0


def with_reference(rows: Iterable[Row], capacity: int) -> list[Row]:
    """``rows`` with the lossless reference first; fetch_all executes the router's own choice at every capacity, so one row serves all.

    Raises:
        UserError: a name and capacity occur twice.
    """
    reference = Row("fetch_all", {"name": "fetch_all", "miss_rule": {"name": "fetch_all"}}, capacity)
    found = [reference, *(row for row in rows if (row.name, row.capacity) != (reference.name, reference.capacity))]
    keys = [(row.name, row.capacity, row.seed) for row in found]
    for key in keys:
        if keys.count(key) > 1:
            raise UserError(f"policy {key[0]} at C = {key[1]} with seed {key[2]} is asked for twice; give the two different names")
    return found
