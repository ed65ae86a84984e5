"""Generated domains: arithmetic, functions against their tests, readable records, and splits by template."""

from __future__ import annotations

import csv
import io
import json
import operator
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from expertmiss.corpora.generators import GENERATORS, HARDER, Template, records, word_problems
from expertmiss.corpora.splits import hashed_split, split_templates, template_split

OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


@pytest.mark.parametrize("domain", GENERATORS)
def test_templates_are_split_disjointly_with_enough_of_each(domain: str) -> None:
    ids = [template.id for template in GENERATORS[domain]()]
    assert len(set(ids)) == len(ids)
    splits = ("train", "calibration", "pilot", "exploratory", "confirmatory", "generation")
    by_split = {split: {template.id for template in split_templates(domain, split)} for split in splits}
    assert sum(map(len, by_split.values())) == len(ids) and set().union(*by_split.values()) == set(ids)
    assert all(len(by_split[split]) >= 40 for split in ("train", "exploratory", "confirmatory", "generation"))


def test_split_of_a_template_does_not_change() -> None:
    assert [
        template_split(name) for name in ("word_problems/apples-add-0", "functions/numbers-even-doubled-sum", "records/users-csv-0")
    ] == ["train", "confirmatory", "train"]
    counts = Counter(hashed_split(str(i), {"pilot": 0.25, "train": 0.75}) for i in range(4000))
    assert abs(counts["pilot"] - 1000) < 100


@pytest.mark.parametrize("domain", GENERATORS)
def test_problems_depend_on_id_and_seed_alone(domain: str) -> None:
    templates = GENERATORS[domain]()[::50]
    first = [template.problems(3, 1) for template in templates]
    assert first == [template.problems(3, 1) for template in reversed(templates)][::-1]
    assert first != [template.problems(3, 2) for template in templates]
    assert all(len({problem.text for problem in problems}) == 3 for problems in first)


def test_held_out_templates_use_what_training_templates_use() -> None:
    parts: dict[str, set[tuple[int, str]]] = {"train": set(), "held out": set()}
    for template in word_problems.templates():
        kind = "train" if template_split(template.id) == "train" else "held out"
        parts[kind].update(enumerate(template.id.removeprefix("word_problems/").split("-")))
    assert parts["held out"] <= parts["train"]


def test_arithmetic_is_right_and_small() -> None:
    for template in GENERATORS["word_problems"]():
        for problem in template.problems(2, 0):
            steps, answer = re.fullmatch(r" (.+)\n#### (\d+)\n\n", problem.solution).groups()  # type: ignore[union-attr]
            results = re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)\.", steps)
            assert 1 <= len(results) <= 3 and " ".join(f"{a} {o} {b} = {c}." for a, o, b, c in results) == steps
            assert all(OPERATIONS[o](int(a), int(b)) == int(c) for a, o, b, c in results)
            assert results[-1][3] == answer == problem.answer and 0 < int(answer) < 100
            assert problem.prompt.startswith("Question: ") and problem.prompt.endswith("?\nAnswer:")
            numbers = Counter(re.findall(r"\d+", problem.prompt))
            known = numbers + Counter(result[3] for result in results)
            assert all(known[n] or n == "2" for a, _, b, _ in results for n in (a, b))


@pytest.mark.parametrize("templates", [GENERATORS["functions"], HARDER["functions"]], ids=["of documents", "scored only"])
def test_functions_pass_their_tests_and_wrong_bodies_do_not(templates: Callable[[], list[Template]]) -> None:
    wrong = passed = 0
    for template in templates():
        for problem in template.problems(2, 0):
            scope: dict[str, Any] = {}
            exec(problem.text, scope)
            assert len(problem.tests) == 5 and problem.solution.count("\n") <= 8
            for test in problem.tests:
                exec(test, scope)
            passed += 1
            exec(problem.prompt + "    return None\n", scope)
            wrong += not _passes(problem.tests, scope)
    assert wrong == passed > 1000


def _passes(tests: tuple[str, ...], scope: dict[str, Any]) -> bool:
    try:
        for test in tests:
            exec(test, scope)
    except AssertionError:
        return False
    return True


def test_records_are_well_formed_and_consistent() -> None:
    for template in records.templates():
        thing, form, _ = template.id.removeprefix("records/").split("-")
        text = template.problems(1, 0)[0].text
        if form in ("csv", "semicolon", "tsv"):
            rows = list(csv.DictReader(io.StringIO(text.strip()), delimiter={"csv": ",", "semicolon": ";", "tsv": "\t"}[form]))
        elif form in ("json", "jsonl"):
            rows = json.loads(text)[thing] if form == "json" else [json.loads(line) for line in text.splitlines() if line]
        else:
            continue
        assert len(rows) >= 12 and len({tuple(row) for row in rows}) == 1
        if thing == "orders" and {"quantity", "price", "total"} <= set(rows[0]):
            assert all(int(row["quantity"]) * int(row["price"]) == int(row["total"]) for row in rows)
