"""One answer beside the reference's, for a terminal: `expertmiss generate --show PROBLEM`."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from expertmiss.errors import UserError, suggest
from expertmiss.generate.compare import read_answers
from expertmiss.generate.examples import common
from expertmiss.generate.paired import first_divergence
from expertmiss.generate.problems import read_problems
from expertmiss.generate.solve import Row

REFERENCE = "fetch_all"
WIDTH = 62
BARS = " ▁▂▃▄▅▆▇█"


def show(answers: Path, problems: Path, problem: str, arm: str, sample: int = 0) -> str:
    """Prompt, both texts side by side (the arm's rest after the first difference behind ``»``), and the mass of every decode step.

    Raises:
        UserError: no results, no such problem or several, no such arm or sample.
    """
    if not answers.is_file():
        raise UserError(f"{answers}: no such file; run `snakemake --cores all generation` first")
    rows = read_answers(answers)
    name = _named(problem, sorted({row["problem"] for row in rows}))
    mine = {row["arm"]: row for row in rows if row["problem"] == name and row["sample"] == sample}
    if not mine:
        raise UserError(
            f"--sample {sample}: {name} has {len({row['sample'] for row in rows if row['problem'] == name})} answers, counted from 0"
        )
    if arm not in mine:
        raise UserError(f"--arm {arm}: no such arm in {answers.name}; {suggest(arm, mine)}")
    table = read_problems(problems, "build_tasks").set_index("problem")
    return rendered(mine[REFERENCE], mine[arm], str(table.loc[name, "prompt"]), str(table.loc[name, "answer"]))


def rendered(reference: Row, row: Row, prompt: str, expected: str) -> str:
    """The page; see :func:`show`."""
    split = first_divergence(row["tokens"], reference["tokens"])
    parted = (
        "the same tokens"
        if split is None
        else f"first different token: {split}, after a substituted mass of {sum(row['masses'][:split]):.3g}"
    )
    lines = [
        f"{row['problem']}  ({row['task']}, {row['source']})", "", prompt, "", *([f"expected: {expected}"] if expected else []), parted, "",
        *_side_by_side(_texts(reference, row)), "",
        *(f"{one['arm']}: {_judged(one)}, {len(one['tokens'])} tokens, {one['finish']}" for one in (reference, row)), "",
        f"substituted mass of each decode step under {row['arm']} (mean over layers; the token it led to is the next one):", *_masses(row["masses"], split),
    ]  # fmt: skip
    return "\n".join(lines)


def _named(problem: str, names: Sequence[str]) -> str:
    if problem in names:
        return problem
    found = [name for name in names if problem in name]
    if len(found) != 1:
        raise UserError(f"--show {problem}: {len(found)} problems have this in their name; give one name, e.g. {(found or names)[0]}")
    return found[0]


def _judged(row: Row) -> str:
    words = {True: "right", False: "wrong", None: "not measured"}
    given = [f"reads {row['answers'][rule]}" for rule in row["answers"]][:1]
    return ", ".join([f"{words[next(iter(row['correct'].values()))]}", *([row["status"]] if row["status"] else []), *given])


def _texts(reference: Row, row: Row) -> list[tuple[str, str]]:
    """Heads and texts; what follows the first difference stands behind ``»``."""
    found = []
    place = common(row["text"], reference["text"])
    for one in (reference, row):
        differs = row["text"] != reference["text"]
        found.append((one["arm"], f"{one['text'][:place]}»{one['text'][place:]}" if differs else one["text"]))
    return found


def _side_by_side(texts: Sequence[tuple[str, str]]) -> list[str]:
    columns = [
        [head, "-" * WIDTH, *(piece for line in text.splitlines() for piece in textwrap.wrap(line, WIDTH, replace_whitespace=False, drop_whitespace=False) or [""])]
        for head, text in texts
    ]  # fmt: skip
    return [f"{left:<{WIDTH}} | {right}".rstrip() for left, right in zip_longest(*columns, fillvalue="")]


def _masses(masses: Sequence[float], split: int | None) -> list[str]:
    """Numbers in rows of ten with a bar each, scaled to the largest; ``»`` stands before the first different token."""
    if not masses:
        return ["  none: only the first token was made, which the prompt decides"]
    largest = max(masses) or 1.0

    def cell(place: int, value: float) -> str:
        return f"{'»' if split is not None and place == split - 1 else ' '}{value:.3f}{BARS[round(value / largest * (len(BARS) - 1))]}"

    cells: list[Any] = [cell(place, value) for place, value in enumerate(masses)]
    return [f"  {begin:>4}  " + " ".join(cells[begin : begin + 10]) for begin in range(0, len(cells), 10)]
