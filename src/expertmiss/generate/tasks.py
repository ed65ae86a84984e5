"""Tasks: what is asked, where an answer ends, and how it is scored."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

COLUMNS = ("problem", "split", "domain", "source", "prompt", "answer", "tests", "entry_point")  # read from problems.parquet
PASS_AT_1 = "pass@1"  # one greedy answer a problem passes its tests

# A body ends where a line begins at the margin, or after two empty lines; HumanEval's stop words (class, def, #, if, print) are all of that kind.
_BODY = re.compile(r"(?P<kept>\n)(?=\n\n|\S)")


@dataclass(frozen=True)
class Task:
    """A kind of problem.

    Attributes:
        name: domain of its problems.
        end: where a complete answer ends; the text is cut there, after what group ``kept`` of the match holds.
        scoring: ``answer`` (an extraction rule against the expected answer) or ``tests`` (assert statements, run in the sandbox).
        primary: extraction rule, or ``pass@1``.
        request: what a chat model is asked before a prompt that it continues word by word; empty: the prompt itself is the request.
    """

    name: str
    end: re.Pattern[str]
    scoring: str
    primary: str
    request: str = ""

    def cut(self, text: str) -> str | None:
        """``text`` up to its end, None while it is not complete."""
        found = self.end.search(text)
        return text[: found.end("kept")] if found else None


COMPLETE = "Complete this Python function. Write its body only."
TASKS = {
    "word_problems": Task("word_problems", re.compile(r"(?P<kept>####[^\n]*)\n"), "answer", "strict-1"),
    "functions": Task("functions", _BODY, "tests", PASS_AT_1, COMPLETE),
    # A model without a marker goes on with a question of its own, as in the prompt's examples.
    "gsm8k": Task("gsm8k", re.compile(r"(?P<kept>####[^\n]*(?=\n)|\S(?=\n\nQuestion:))"), "answer", "strict-1"),
    "humaneval": Task("humaneval", _BODY, "tests", PASS_AT_1, COMPLETE),
}


@dataclass(frozen=True)
class Item:
    """One problem as the model sees it.

    ``prompt`` has no white space at its end: tokenizers join it with what follows, so that a prompt that ends in it is a sequence of
    tokens that no text contains; the model writes it itself. ``number`` is the problem's place in its table, part of random draws.
    """

    problem: str
    task: Task
    source: str
    prompt: str
    answer: str
    tests: tuple[str, ...]
    entry_point: str
    number: int = 0


def item(row: Mapping[str, Any], primary: Mapping[str, str] | None = None) -> Item:
    """The item of a row of ``problems.parquet``; ``primary`` names the primary scoring rule by task, where it is not the task's own."""
    task = TASKS[row["domain"]]
    return Item(
        row["problem"], replace(task, primary=(primary or {}).get(task.name, task.primary)), row["source"], row["prompt"].rstrip(), row["answer"],
        tuple(json.loads(row["tests"])), row["entry_point"], row.get("number", 0),
    )  # fmt: skip
