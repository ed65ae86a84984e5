"""How hard a generated problem is. Only problems for scoring are chosen by it; the text of documents and of training never is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from expertmiss.corpora.generators.base import Problem, Template
from expertmiss.errors import UserError

RANGES = ("scored_steps", "scored_largest", "scored_parts")


def steps(problem: Problem) -> int:
    """Steps of arithmetic in a word problem's worked solution."""
    return problem.solution.count(" = ")


def largest_number(problem: Problem) -> int:
    """The largest number in a word problem's question and solution."""
    return max(map(int, re.findall(r"\d+", problem.text)))


def parts(template: Template) -> int:
    """How many conditions and changes a function has: 0 (``all``, ``same``) to 3."""
    _, select, change, _ = template.id.split("/")[1].split("-")
    return (select != "all") + (0 if change == "same" else 1 + change.count("+"))


def check_ranges(corpus: Mapping[str, Any]) -> None:
    """Refuse ranges that are not two numbers, the smaller one first.

    Raises:
        UserError: which option it is.
    """
    for name in RANGES:
        if len(corpus[name]) != 2 or corpus[name][0] > corpus[name][1]:
            raise UserError(f"corpus.{name}: {corpus[name]} is not a range; give two numbers, the smaller one first")


def within(corpus: Mapping[str, Any], domain: str, template: Template, problem: Problem) -> bool:
    """Whether ``problem`` lies in the ranges ``scored_steps``, ``scored_largest`` and ``scored_parts`` (both ends included)."""
    if domain == "word_problems":
        return _between(steps(problem), corpus["scored_steps"]) and _between(largest_number(problem), corpus["scored_largest"])
    return _between(parts(template), corpus["scored_parts"])


def _between(value: int, ends: list[int]) -> bool:
    return ends[0] <= value <= ends[1]
