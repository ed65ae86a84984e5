"""What E5 runs: the paper's policies and C2's protected ones at the claims' capacity, and the paper's at further capacities for the time model."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expertmiss.emulate.rows import Row
from expertmiss.experiments.plans import Planned, load_claims
from expertmiss.simulate.capacity import holds_a_token, resident_experts

RULES = "prereg/e5.yaml"
REFERENCE = "fetch_all"
PAPER, PROTECTED, CELL = ("reference", "paper"), "protected", "cell"


def load_rules(path: Path) -> dict[str, Any]:
    """``prereg/e5.yaml`` as a plain dict.

    Raises:
        UserError: missing, or not such a file.
    """
    return load_claims(path)


def plan(options: Mapping[str, Any], rules: Mapping[str, Any], claims: Mapping[str, Any], experts: int, top_k: int) -> list[Planned]:
    """Rows for a model with ``experts`` experts a layer and ``top_k`` of them a token; the reference is the first.

    Args:
        options: section ``e5`` of the configuration.
        rules: :func:`load_rules`.
        claims: ``config/claims.yaml``.

    Raises:
        UserError: a residency with C < K.
    """
    share = rules["residency"]
    rows = [
        _planned(name, parts, share, "reference" if name == REFERENCE else "paper", name, experts, top_k)
        for name, parts in rules["policies"].items()
    ]
    rows += [
        _planned(name, parts, share, PROTECTED, family, experts, top_k)
        for family, members in claims["policies"]["C2"].items() for name, parts in members.items()
    ]  # fmt: skip
    taken = {rows[0].row.capacity}
    for further in options["residency"]:
        # A share of fewer than K experts cannot hold a token's own; it is left out.
        if not holds_a_token(further, experts, top_k) or (capacity := resident_experts(further, experts, top_k, "e5.residency")) in taken:
            continue
        taken.add(capacity)
        rows += [_planned(name, parts, further, CELL, name, experts, top_k) for name, parts in rules["policies"].items()]
    return rows


def _planned(name: str, parts: Mapping[str, Any], share: float, arm: str, family: str, experts: int, top_k: int) -> Planned:
    capacity = resident_experts(share, experts, top_k, "e5")
    return Planned(Row(name, {"name": name, **copy.deepcopy(dict(parts))}, capacity), share, arm, family, capacity < 2 * top_k)


def due(rows: list[Planned], stream: int, repeat: int, timed: int) -> list[int]:
    """Rows that run on the ``stream``-th stream in a repeat: the paper's always, C2's in the first repeat, further capacities there on the first
    ``timed`` streams."""
    return [
        index for index, item in enumerate(rows)
        if item.arm in PAPER or (repeat == 0 and (item.arm == PROTECTED or stream < timed))
    ]  # fmt: skip


def order(rows: int, chosen: list[int], stream: int, repeat: int) -> NDArray[np.int64]:
    """``chosen`` of ``rows`` in an order that is drawn for every stream, the other way round in every second repeat."""
    drawn = np.random.default_rng(stream).permutation(rows)
    kept = drawn[np.isin(drawn, chosen)]
    return kept[::-1] if repeat % 2 else kept
