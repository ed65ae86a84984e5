"""A few pairs of answers to look at: an arm's text beside the reference's, where they part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from expertmiss.generate.paired import first_divergence
from expertmiss.generate.solve import Row

REFERENCE = "fetch_all"
COLUMNS = (
    "task", "arm", "problem", "prompt", "reference", "text", "same_characters", "first_divergence", "reference_correct", "correct", "mass_before",
)  # fmt: skip


def example_table(groups: Mapping[tuple[str, str], list[Row]], prompts: Mapping[str, str], most: int = 2) -> pd.DataFrame:
    """At most ``most`` pairs of each task and arm whose texts differ: a lost problem and a gained one first, then the earliest by name.

    ``same_characters``: length of the common beginning of both texts. ``mass_before``: substituted mass of the decode steps before the first
    different token, summed, mean over layers. ``correct``: by the primary rule, empty where it was not measured.
    """
    found: list[dict[str, Any]] = []
    for (task, arm), rows in groups.items():
        if arm == REFERENCE:
            continue
        pairs = [(row, other) for row, other in zip(rows, groups[task, REFERENCE], strict=True) if row["text"] != other["text"]]
        for row, other in sorted(pairs, key=_interest)[:most]:
            split = first_divergence(row["tokens"], other["tokens"])
            found.append({
                "task": task, "arm": arm, "problem": row["problem"], "prompt": prompts.get(row["problem"], ""), "reference": other["text"],
                "text": row["text"], "same_characters": common(row["text"], other["text"]), "first_divergence": split,
                "reference_correct": _words(other), "correct": _words(row), "mass_before": float(sum(row["masses"][:split])),
            })  # fmt: skip
    return pd.DataFrame(found, columns=list(COLUMNS)).assign(reliable="yes")


def common(one: str, other: str) -> int:
    """Length of the common beginning."""
    for place, (first, second) in enumerate(zip(one, other, strict=False)):
        if first != second:
            return place
    return min(len(one), len(other))


def _verdict(row: Row) -> Any:
    return next(iter(row["correct"].values()))


def _words(row: Row) -> str:
    return {True: "right", False: "wrong"}.get(_verdict(row), "not measured")


def _interest(pair: tuple[Row, Row]) -> tuple[int, str]:
    """Lost problems first, then gained ones, then the others."""
    row, other = pair
    mine, reference = _verdict(row), _verdict(other)
    return (0 if reference and not mine else 1 if mine and not reference else 2), str(row["problem"])
