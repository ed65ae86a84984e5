"""Tasks: problems from generators, from a file in GSM8K's schema, from HumanEval's package; prompts in a chat."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from expertmiss.config import compose
from expertmiss.config.check import check_configuration
from expertmiss.config.compose import load_task
from expertmiss.corpora.splits import template_split
from expertmiss.errors import UserError
from expertmiss.generate import build
from expertmiss.generate.build import problem_table
from expertmiss.generate.extract import last_number, same_answer, strict
from expertmiss.generate.solve import prompt_tokens
from expertmiss.generate.tasks import TASKS, item
from expertmiss.stages import Context

ROOT = Path(__file__).parents[2]
CORPUS = {"seed": 0, "scored_steps": [1, 3], "scored_largest": [1, 99], "scored_parts": [0, 2], "name": "builtin"}
GSM8K = load_task(ROOT, "gsm8k")


def test_every_task_file_is_named_after_its_file_and_scored_by_a_rule_of_its_own() -> None:
    for path in (ROOT / "config" / "task").glob("*.yaml"):
        task = load_task(ROOT, path.stem)
        assert task["name"] == path.stem and (task["primary"] == "pass@1") == (TASKS[path.stem].scoring == "tests")


def test_synthetic_problems_take_turns_and_stay_in_their_split() -> None:
    tasks = {name: load_task(ROOT, name) for name in ("word_problems", "functions")}
    table = problem_table(tasks, CORPUS, "generation", 130)
    assert table.groupby("domain").size().to_dict() == {"word_problems": 130, "functions": 130}
    assert set(table["split"]) == {"generation"} and table["problem"].is_unique
    assert {template_split(source.removeprefix("template:")) for source in table["source"]} == {"generation"}
    assert table.groupby("source").size().max() == 2 and table["number"].is_monotonic_increasing is False


def test_the_stage_takes_pilot_problems_without_a_lock(tmp_path: Path) -> None:
    cfg = {"tasks": {"word_problems": load_task(ROOT, "word_problems")}, "generate": {"split": "pilot", "problems": 3}, "corpus": CORPUS}
    for lock, split in (("none", "pilot"), ("ab" * 32, "generation")):
        out = tmp_path / "results" / split
        build.run(cfg, out=out, context=Context("test", "hash"), lock=lock)
        assert set(pd.read_parquet(out / "problems.parquet")["split"]) == {split}
        assert json.loads((out / "run.json").read_text())["config"]["lock"] == lock


def gsm8k(path: Path, *lines: Any) -> dict[str, Any]:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return {**GSM8K, "file": str(path)}


def test_problems_in_the_schema_of_gsm8k(tmp_path: Path) -> None:
    task = gsm8k(
        tmp_path / "some.jsonl", {"question": "Ann has 2 {boxes} of 600.", "answer": "2 * 600 = <<2*600=1200>>1200\n#### 1,200"}, {"question": " Why? ", "answer": "#### -3"}
    )  # fmt: skip
    table = problem_table({"gsm8k": task}, CORPUS, "pilot", 10)
    assert list(table["answer"]) == ["1,200", "-3"] and list(table["source"]) == ["gsm8k/0", "gsm8k/1"]
    first, second = (item({str(name): value for name, value in row.items()}) for row in table.to_dict("records"))
    assert first.prompt.endswith("Question: Ann has 2 {boxes} of 600.\nAnswer:") and "{question}" not in first.prompt
    assert second.prompt.endswith("Question: Why?\nAnswer:") and first.prompt.count("####") == 4 and first.task is not None
    assert first.task.cut(" 2 * 600 = 1200\n#### 1200\n\nQuestion: more") == " 2 * 600 = 1200\n#### 1200"
    assert first.task.cut(" It is 1200.\n\nQuestion: more") == " It is 1200." and first.task.cut(" It is 1200.\n\nQues") is None
    assert same_answer(strict(" so\n#### 1200"), first.answer) and same_answer(last_number(" so it is 1,200."), first.answer)


def test_the_examples_of_the_prompt_are_right() -> None:
    from expertmiss.generate.gsm8k import PROMPT

    for example in PROMPT.read_text().split("\n\n")[:-1]:
        steps = [line for line in example.splitlines() if " = " in line]
        for step in steps:
            left, right = step.split(" = ")
            words = left.split()
            expression = " ".join(words[-3:])
            assert eval(expression) == int(right.split()[0]), step
        assert int(steps[-1].split(" = ")[1].split()[0]) == int(strict(example) or "")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["{"], "line 1 is not JSON"), (["[1]"], "line 1 is no object"), ([{"question": "Q"}], "problem 1 has no 'question' or no 'answer'"),
        ([{"question": "Q", "answer": "7"}], "no 'answer' with '#### number'"), ([], "task gsm8k: has no problem"),
    ],
)  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, lines: list[Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        problem_table({"gsm8k": gsm8k(tmp_path / "some.jsonl", *lines)}, CORPUS, "pilot", 10)


def test_without_a_file_or_a_hub_one_line_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*names: Any, **options: Any) -> Any:
        raise ConnectionError("cannot reach the hub\nand more")

    for module, message in (
        (SimpleNamespace(load_dataset=offline), r"'openai/gsm8k' cannot be loaded \(cannot reach the hub\); .* name a local JSONL file"),
        (None, "needs the package 'datasets'"),
    ):
        monkeypatch.setitem(sys.modules, "datasets", module)
        with pytest.raises(UserError, match=message) as caught:
            problem_table({"gsm8k": GSM8K}, CORPUS, "pilot", 10)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="cannot be read"):
        problem_table({"gsm8k": {**GSM8K, "file": str(tmp_path / "none.jsonl")}}, CORPUS, "pilot", 10)
    with pytest.raises(UserError, match="names neither a file nor a data set"):
        problem_table({"gsm8k": {**GSM8K, "path": None}}, CORPUS, "pilot", 10)


def test_no_task_is_no_test() -> None:
    assert compose(ROOT, "b")["tasks"] == {}
    with pytest.raises(UserError, match=r"generate\.tasks: is empty"):
        problem_table({}, CORPUS, "pilot", 10)


def test_humaneval_is_a_task_like_the_others() -> None:
    table = problem_table({"humaneval": load_task(ROOT, "humaneval")}, CORPUS, "pilot", 1000)
    assert len(table) == 164 and table["source"].nunique() == 164
    first = item({str(name): value for name, value in table.iloc[0].items()})
    assert first.tests[0].endswith(f"check({first.entry_point})") and first.task.scoring == "tests"


class Chat:
    """A tokenizer with a chat template: one token a character."""

    bos_token_id, eos_token_id = 1, 2

    def __init__(self, template: str | None) -> None:
        self.chat_template = template

    def __call__(self, text: Any, **options: Any) -> dict[str, Any]:
        assert options["add_special_tokens"] is False
        return {
            "input_ids": [ord(letter) for letter in text] if isinstance(text, str) else [[ord(letter) for letter in one] for one in text]
        }

    def apply_chat_template(self, turns: list[dict[str, str]], tokenize: bool, **options: bool) -> str:
        text = "".join(f"<{turn['role'][0]}>{turn['content']}" for turn in turns)
        return text + ("<a>" if options.get("add_generation_prompt") else "")


def test_chats_are_asked_and_functions_are_continued() -> None:
    row = {"problem": "x", "source": "s", "answer": "7", "tests": "[]", "entry_point": ""}
    word = item({**row, "domain": "word_problems", "prompt": "Q\nAnswer:"})
    function = item({**row, "domain": "functions", "prompt": "def f():\n"})
    texts = ["".join(map(chr, ids)) for ids in prompt_tokens(Chat("a template"), [word, function])]
    assert texts == ["<u>Q\nAnswer:<a>", "<u>Complete this Python function. Write its body only.<a>def f():"]
    plain = prompt_tokens(Chat(None), [word])
    assert plain == [[1, *(ord(letter) for letter in "Q\nAnswer:")]]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("generate.arms=[rule_015]", "generate.arms: fetch_all is missing"),
        ("generate.samples=2", "2 greedy answers would be the same; set generate.temperature"),
        ("generate.pass_at=[1,2]", "pass@2 needs as many samples, generate.samples is 1"),
        ("generate.residency=0.001", "generate.residency: 0.001 of 256 experts is C = 0"),
        ("generate.tasks=[gsm]", "task=gsm: no such file in config/task; did you mean 'gsm8k'?"),
    ],
)
def test_mistakes_are_found_before_anything_runs(override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_configuration(ROOT, compose(ROOT, "default", overrides=[override]))
