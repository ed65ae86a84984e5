"""Difficulty of scored problems: ranges hold, defaults restrict nothing, documents do not depend on it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from expertmiss.corpora import build, builtin
from expertmiss.corpora.generators import GENERATORS
from expertmiss.corpora.generators.difficulty import largest_number, parts, steps
from expertmiss.corpora.splits import split_templates
from expertmiss.errors import UserError
from expertmiss.stages import Context

EASY = {"scored_steps": [1, 1], "scored_largest": [4, 20], "scored_parts": [0, 1]}


def scored(corpus: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(builtin.scored_problems({**corpus, "problems_per_template": 3}, "generation"))


def test_ranges_hold_and_the_rest_is_unchanged(corpus: dict[str, Any]) -> None:
    plain, easy = scored(corpus), scored({**corpus, **EASY})
    words = easy[easy["domain"] == "word_problems"]
    assert len(words) >= 60 and words["solution"].str.count(" = ").eq(1).all()
    largest = [max(map(int, re.findall(r"\d+", row.prompt + row.solution))) for row in words.itertuples()]
    assert max(largest) <= 20 and min(largest) >= 4
    functions = easy[easy["domain"] == "functions"]
    assert len(functions) >= 30 and functions["source"].str.contains("-all-|-same-").all()
    hard = scored({**corpus, "scored_steps": [3, 3]})
    assert set(hard.loc[hard["domain"] == "word_problems", "source"].str.split("-").str[1]) == {"two_products"}
    # Templates whose problems are all allowed give the same ones as before.
    kept = functions.merge(plain, on=["problem", "prompt", "solution"])
    assert len(kept) == len(functions)


def test_default_ranges_allow_every_problem(corpus: dict[str, Any]) -> None:
    for domain, template in ((name, found) for name in builtin.SCORED for found in split_templates(name, "pilot")):
        problems = template.problems(4, 3)
        assert problems == template.problems(4, 3, lambda problem: True)
        if domain == "word_problems":
            assert all(1 <= steps(problem) <= 3 and largest_number(problem) <= 99 for problem in problems)
        else:
            assert 0 <= parts(template) <= 2


def test_compositions_are_scored_and_stand_in_no_document(corpus: dict[str, Any]) -> None:
    known = {template.id for template in GENERATORS["functions"]()}
    every = scored({**corpus, "scored_parts": [0, 3]})
    twice = every[(every["domain"] == "functions") & every["source"].str.contains("+", regex=False)]
    assert len(twice) > 50 and not set(twice["source"].str.removeprefix("template:")) & known
    by_id = {template.id: template for template in split_templates("functions", "generation", harder=True)}
    assert {parts(by_id[source.removeprefix("template:")]) for source in twice["source"]} == {2, 3}
    assert {template.id for template in split_templates("functions", "generation")} <= known


def test_documents_do_not_depend_on_it(corpus: dict[str, Any], tmp_path: Path, context: Context) -> None:
    for name, change in (("a", {}), ("b", EASY)):
        build.run({"corpus": {**corpus, **change}}, out=tmp_path / name, context=context)
    for name in ("documents.parquet", "manifest.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert (tmp_path / "a" / "problems.parquet").read_bytes() != (tmp_path / "b" / "problems.parquet").read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scored_steps": [2]}, r"corpus.scored_steps: \[2\] is not a range"),
        ({"scored_parts": [2, 1]}, r"corpus.scored_parts: \[2, 1\] is not a range"),
        ({"scored_largest": [1, 1]}, "no problem of word_problems in split generation lies in these ranges"),
    ],
)
def test_ranges_that_cannot_be_are_refused(corpus: dict[str, Any], change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        scored({**corpus, **change})
