"""Extraction, ends of answers, scoring and accuracy, by hand."""

from __future__ import annotations

import pytest
from scipy.stats import norm

from expertmiss.generate.accuracy import accuracies, wilson
from expertmiss.generate.extract import EXTRACTIONS, last_number, same_answer, strict
from expertmiss.generate.solve import scored
from expertmiss.generate.tasks import TASKS, Item, item
from expertmiss.sandbox import Outcome, Sandbox

WORD = {
    "problem": "w/0", "domain": "word_problems", "source": "template:w", "prompt": "Question: 3 and 4?\nAnswer:", "answer": "7", "tests": "[]",
    "entry_point": "",
}  # fmt: skip
FUNCTION = {**WORD, "problem": "f/0", "domain": "functions", "prompt": 'def f(x):\n    """Doc."""\n', "answer": "", "tests": '["assert f(1) == 2"]', "entry_point": "f"}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "marked", "last"),
    [
        (" 3 + 4 = 7.\n#### 7", "7", "7"),
        (" 3 + 4 = 7.\n####7\nQuestion: 12", "7", "12"),
        (" 3 + 4 = 7.", None, "7"),
        (" none at all", None, None),
        (" it is -1,234.50 dollars\n####", None, "-1,234.50"),
        ("#### 70,000\n#### 8", "70,000", "8"),
    ],
)
def test_extraction(text: str, marked: str | None, last: str | None) -> None:
    assert strict(text) == marked and last_number(text) == last


def test_names_carry_a_version() -> None:
    assert set(EXTRACTIONS) == {"strict-1", "last_number-1"}


@pytest.mark.parametrize(
    ("given", "expected", "same"),
    [("7", "7", True), ("7.0", "7", True), ("$1,000.", "1000", True), ("07", "7", True), ("71", "7", False), (None, "7", False), ("7 apples", "7", False), ("yes", "yes", True)],
)  # fmt: skip
def test_answers_are_compared_as_numbers(given: str | None, expected: str, same: bool) -> None:
    assert same_answer(given, expected) is same


def test_where_answers_end() -> None:
    words, functions = TASKS["word_problems"], TASKS["functions"]
    assert words.cut(" 3 + 4 = 7.\n#### 7") is None
    assert words.cut(" 3 + 4 = 7.\n#### 7\nQuestion") == " 3 + 4 = 7.\n#### 7"
    body = "\n    y = x\n\n    return y\n"
    assert functions.cut(body) is None and functions.cut(body + "\n") is None
    assert functions.cut(body + "\n\n") == functions.cut(body + "def g():") == functions.cut(body + "\n\nprint(1)") == body
    assert functions.cut("\n    return 1\n# note") == "\n    return 1\n"


def test_prompts_end_without_white_space() -> None:
    assert item(FUNCTION).prompt == 'def f(x):\n    """Doc."""' and item(WORD).prompt.endswith("Answer:")


RUNS: list[str] = []


class Fake(Sandbox):
    """Passes programs that hold ``+ 1``."""

    def run(self, program: str, tests: object = ()) -> Outcome:
        RUNS.append(program)
        assert program.startswith('def f(x):\n    """Doc."""\n    return') and tests == ("assert f(1) == 2",)
        return Outcome("passed" if "+ 1" in program else "failed")


class Says:
    """A tokenizer whose tokens read as one text."""

    eos_token_id = 0

    def __init__(self, text: str) -> None:
        self.text = text

    def decode(self, ids: list[int], **options: object) -> str:
        assert 0 not in ids
        return self.text


def test_rows_and_accuracies() -> None:
    word, function = item(WORD), item(FUNCTION)
    fake = Fake("fake", (), None)  # type: ignore[arg-type]

    def row(of: Item, text: str, last: int = 5) -> dict[str, object]:
        return scored([(of, [4, last])], Says(text), fake)[0]

    rows = [
        row(word, " 7.\n#### 7\nQuestion: 8"), row(word, " 7"), row(word, " 3 + 4 = 8.\n#### 8", 0), row(word, "#### 7\n"),
        row(function, "\n    return x + 1\n\n\n"), row(function, "\n    return x\ndef"),
    ]  # fmt: skip
    assert [found["finish"] for found in rows] == ["ended", "cap", "eos", "ended", "ended", "ended"]
    found = accuracies(rows, {"word_problems": 96, "functions": 160}, "fake")
    words = found["word_problems"]
    assert (
        list(words["by_rule"]) == ["strict-1", "last_number-1"] and words["n"] == 4 and words["truncated"] == 1 and words["unmarked"] == 1
    )
    assert words["by_rule"]["strict-1"]["accuracy"] == 0.5 and words["by_rule"]["last_number-1"]["accuracy"] == 0.75
    assert words["by_source"] == {"template:w": [2, 4]}
    assert found["functions"]["by_rule"]["pass@1"]["correct"] == 1 and found["functions"]["statuses"] == {"failed": 1, "passed": 1}


def test_equal_programs_are_run_once() -> None:
    RUNS.clear()
    fake = Fake("fake", (), None)  # type: ignore[arg-type]
    rows = scored([(item(FUNCTION), [4])] * 3, Says("\n    return x + 1\n\n\n"), fake)
    assert [row["correct"] for row in rows] == [{"pass@1": True}] * 3 and len(RUNS) == 1


def test_the_primary_rule_stands_first() -> None:
    chosen = item(WORD, {"word_problems": "last_number-1"})
    row = scored([(chosen, [4])], Says(" 7"), None)[0]
    assert list(row["correct"].items()) == [("last_number-1", True), ("strict-1", False)] and list(row["answers"]) == list(row["correct"])


def test_functions_without_a_sandbox_are_not_measured() -> None:
    rows = scored([(item(FUNCTION), [4])], Says("\n    return x\n\n\n"), None)
    found = accuracies(rows, {"functions": 160}, "bubblewrap is not installed")["functions"]
    assert found["by_rule"] == {} and found["n"] == 1 and found["sandbox"] == "bubblewrap is not installed" and "by_source" not in found


def test_wilson_by_formula() -> None:
    z, n, p = norm.ppf(0.975), 20, 0.25
    centre, half = (p + z * z / (2 * n)) / (1 + z * z / n), z / (1 + z * z / n) * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    found = wilson(5, 20)
    assert found["interval"] == pytest.approx([centre - half, centre + half]) and found["accuracy"] == 0.25
    assert wilson(0, 10)["interval"][0] == 0 and wilson(0, 10)["interval"][1] > 0.2
