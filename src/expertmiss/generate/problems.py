"""The problems that a stage answers, and where their programs may run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from expertmiss.errors import UserError
from expertmiss.generate.tasks import COLUMNS, Item, item
from expertmiss.sandbox import Limits, Sandbox, find_sandbox


def read_items(path: Path, split: str, most: int) -> list[Item]:
    """At most ``most`` problems of each task of ``split``, templates taking turns; none where the corpus has no problems.

    Raises:
        UserError: ``problems.parquet`` is missing, damaged or of another form, or holds problems but none of this split.
    """
    rows = read_problems(path, "build_corpus")
    rows = rows.assign(number=range(len(rows)))
    chosen = rows[rows["split"] == split]
    if len(rows) and chosen.empty:
        raise UserError(
            f"{path}: no problem of split '{split}' (present: {', '.join(sorted(set(rows['split'])))}); add it to corpus.splits"
        )
    return items_of(in_turns(chosen, most))


def items_of(rows: pd.DataFrame, primary: Mapping[str, str] | None = None) -> list[Item]:
    """The items of ``rows``; ``primary`` as in :func:`expertmiss.generate.tasks.item`."""
    return [item({str(name): value for name, value in row.items()}, primary) for row in rows.to_dict("records")]


def read_problems(path: Path, stage: str) -> pd.DataFrame:
    """``problems.parquet`` as ``stage`` wrote it.

    Raises:
        UserError: missing, damaged or of another form.
    """
    try:
        rows = pd.read_parquet(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run {stage} first") from None
    except (OSError, ValueError) as problem:
        reason = next(iter(str(problem).splitlines()), type(problem).__name__)
        raise UserError(f"{path}: not a readable Parquet file ({reason}); run {stage} again") from None
    for name in COLUMNS:
        if name not in rows:
            raise UserError(f"{path}: no column '{name}'; run {stage} again")
    return rows


def in_turns(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """At most ``most`` rows of each domain, one of every source, then a second one of each; in the order of ``number``."""
    turns = rows.assign(turn=rows.groupby("source").cumcount()).sort_values(["turn", "number"])
    return turns.groupby("domain").head(most).sort_values("number").drop(columns="turn")


def caps_of(tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Most tokens of an answer by task."""
    return {name: task["tokens"] for name, task in tasks.items()}


def sandbox_for(items: Sequence[Item], options: Mapping[str, Any]) -> tuple[Sandbox | None, str]:
    """The sandbox that the section ``sandbox`` allows, if any of ``items`` needs one, and a sentence on it."""
    if not any(problem.task.scoring == "tests" for problem in items):
        return None, "no program to run"
    limits = Limits(seconds=options["seconds"], memory_mib=options["memory_mib"], processes=options["processes"])
    return find_sandbox(limits, options["allow_weak"])
