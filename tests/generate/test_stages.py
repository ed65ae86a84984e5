"""Stages generate_answers and compare_answers, on a tiny model and by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from expertmiss.errors import UserError
from expertmiss.generate import compare, stage
from expertmiss.generate import problems as generate_problems
from expertmiss.generate.arms import ArmDecoder
from expertmiss.generate.paired import first_divergence, mcnemar, token_agreement
from expertmiss.generate.problems import read_items
from expertmiss.generate.show import show
from expertmiss.generate.solve import solve
from expertmiss.generate.tables import Measured, arm_table, groups_of, pass_table
from expertmiss.models.load import load_model
from expertmiss.stages import Context
from tests.generate.conftest import answers_section

ARMS = ("substitute_all", "fetch_all", "quality_first")
STATS = {"resamples": 200, "confidence": 0.95, "seed": 1, "min_clusters": 2}
CONTEXT = Context("test", "hash")
COMPARE = {"stats": STATS, "report": {"quick": True}, "generate": {"pass_at": [1]}, "model": {"name": "tiny"}, "profile": "builtin"}
TABLES = {f"e7_{name}" for name in ("accuracy", "paired", "flips", "orders", "survival", "passes", "statistics", "predictions", "examples")}


@pytest.fixture(autouse=True)
def no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate_problems, "find_sandbox", lambda limits, allow_weak: (None, "none here"))


def test_answers_of_every_arm(
    tiny_folder: Path, calibration: Path, problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, inputs = tmp_path / "results" / "out", {"problems": problems, "calibration": calibration}
    whole, calls = ArmDecoder.run, []

    def killed(self: ArmDecoder, prompts: Any, *rest: Any, **options: Any) -> Any:
        calls.append(len(prompts))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(self, prompts, *rest, **options)

    monkeypatch.setattr(ArmDecoder, "run", killed)
    with pytest.raises(KeyboardInterrupt):
        stage.run(answers_section(tiny_folder, ARMS), out=out, context=CONTEXT, **inputs)
    assert calls == [2, 2, 2] and not (out / "run.json").exists()
    stage.run(answers_section(tiny_folder, ARMS), out=out, context=CONTEXT, **inputs)
    assert calls == [2, 2, 2, 2, 2]  # two of four batches were there
    rows = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    assert len(rows) == 2 * 4 * 3 and {row["arm"] for row in rows} == set(ARMS) and {row["capacity"] for row in rows} == {6}
    assert not list((out / ".parts").rglob("*.jsonl"))
    run = json.loads((out / "run.json").read_text())
    assert run["labels"]["status"] == "exploratory" and run["config"]["lock"] == "none" and "greedy" in run["labels"]["notes"]
    # The reference arm is the model's own greedy answer, and the others differ from it somewhere.
    model, tokenizer = load_model(tiny_folder)
    items = read_items(problems, "pilot", 4)
    plain = solve(
        model, tokenizer, items, caps={"word_problems": 12, "functions": 16}, batch=8, sandbox=None, parts=tmp_path / "plain", journal=None
    )  # fmt: skip
    own = {row["problem"]: row["tokens"] for row in plain}
    assert {row["problem"]: row["tokens"] for row in rows if row["arm"] == "fetch_all"} == own
    assert any(row["tokens"] != own[row["problem"]] for row in rows)
    for row in rows:
        assert row["meters"]["tokens"] == 2 * (len(row["tokens"]) - 1) and row["meters"]["calls"] == 4 * row["meters"]["tokens"]
        assert (row["meters"]["mass"] > 0) == (row["meters"]["substituted"] > 0) and (
            row["arm"] != "fetch_all" or row["meters"]["mass"] == 0
        )
        assert len(row["masses"]) == len(row["tokens"]) - 1 and 2 * sum(row["masses"]) == pytest.approx(row["meters"]["mass"], abs=1e-4)
    assert any(row["meters"]["mass"] > 0 for row in rows)
    compared = tmp_path / "results" / "compared"
    compare.run(COMPARE, out=compared, context=CONTEXT, answers=out / "answers.jsonl", problems=problems)
    assert {path.stem for path in compared.glob("*.parquet")} == TABLES
    arms = pd.read_parquet(compared / "e7_accuracy.parquet")
    assert len(arms) == 3 * (2 + 1) and set(arms.loc[arms["accuracy"].isna(), "task"]) == {"functions"}  # functions were not measured
    predictions = pd.read_parquet(compared / "e7_predictions.parquet")
    assert (
        len(predictions) == 18 and set(predictions["outcome"]) == {"undecided"} and set(predictions["verdict"]) == {"quick run: not judged"}
    )
    run = json.loads((compared / "run.json").read_text())
    assert run["labels"]["substrate"] == "random_weights" and run["labels"]["n"] == {"problems": 8, "templates": 4}
    assert not (compared / "result.json").exists()
    changed = next(row for row in rows if row["arm"] == "substitute_all" and row["tokens"] != own[row["problem"]])
    page = show(out / "answers.jsonl", problems, changed["problem"], "substitute_all")
    split = first_divergence(changed["tokens"], own[changed["problem"]])
    assert f"first different token: {split}," in page and "fetch_all" in page and "Ask" in page
    assert len(re.findall(r"\d\.\d{3}", page.partition("mass of each")[2])) == len(changed["masses"])
    with pytest.raises(UserError, match="--arm nobody: no such arm"):
        show(out / "answers.jsonl", problems, changed["problem"], "nobody")
    with pytest.raises(UserError, match="8 problems have this in their name"):
        show(out / "answers.jsonl", problems, "/", "substitute_all")


def test_drawn_answers(tiny_folder: Path, calibration: Path, problems: Path, tmp_path: Path) -> None:
    """Several answers to a problem; those of one sample use the same numbers under every arm, so that arms without misses agree."""
    out = tmp_path / "results" / "out"
    cfg = answers_section(
        tiny_folder, ("fetch_all", "substitute_all"), samples=3, temperature=1.0, residency=1.0, tokens={"word_problems": 12}
    )
    table = pd.read_parquet(problems)
    table[table["domain"] == "word_problems"].to_parquet(problems)
    stage.run(cfg, out=out, context=CONTEXT, problems=problems, calibration=calibration)
    rows = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    assert len(rows) == 4 * 2 * 3
    tokens = {(row["problem"], row["arm"], row["sample"]): row["tokens"] for row in rows}
    assert all(tokens[problem, "fetch_all", sample] == tokens[problem, "substitute_all", sample] for problem, _, sample in tokens)
    assert len({tuple(tokens["word_problems/0", "fetch_all", sample]) for sample in range(3)}) > 1
    passes = pass_table(rows, [1, 3], STATS)
    assert list(passes["k"]) == [1, 3, 1, 3] and set(passes["samples"]) == {3}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rows": 2}, "generate.rows: 2 rows do not hold 3 arms"),
        ({"residency": 0.1}, r"generate\.residency: 0.1 of 16 experts is C = 2, but K <= C <= E must hold"),
        ({"tokens": {"word_problems": 12, "functions": 64}}, "the model reads 64; lower the cap of task functions"),
    ],
)
def test_what_cannot_be_run_is_refused(
    tiny_folder: Path, calibration: Path, problems: Path, tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        stage.run(
            answers_section(tiny_folder, ARMS, **changed), out=tmp_path / "results" / "out", context=CONTEXT, problems=problems, calibration=calibration
        )  # fmt: skip


def test_a_reference_is_needed(tiny_folder: Path, calibration: Path, problems: Path, tmp_path: Path) -> None:
    cfg = answers_section(tiny_folder, ARMS)
    del cfg["arms"]["fetch_all"]
    with pytest.raises(UserError, match=r"generate\.arms: fetch_all is missing"):
        stage.run(cfg, out=tmp_path / "results" / "out", context=CONTEXT, problems=problems, calibration=calibration)


def made(problem: int, arm: str, right: bool, tokens: list[int], hits: int = 3) -> dict[str, Any]:
    meters = {"calls": 4, "hits": hits, "tokens": 2, "mass": 0.5 * (4 - hits)}
    return {
        "problem": f"p{problem}", "task": "word_problems", "source": f"t{problem // 2}", "tokens": tokens, "text": str(tokens), "finish": "cap",
        "answers": {"strict-1": None, "last_number-1": "7"}, "correct": {"strict-1": right, "last_number-1": True}, "status": "", "arm": arm, "meters": meters,
        "sample": 0, "masses": [0.1] * (len(tokens) - 1),
    }  # fmt: skip


def by_hand() -> list[dict[str, Any]]:
    reference = [made(i, "fetch_all", i < 6, [1, 2, 3], 4) for i in range(8)]
    arm = [made(i, "a", i in (0, 1, 2, 3, 7), [1, 2, 3] if i < 4 else [1, 9], 3 if i else 1) for i in range(8)]
    return arm + reference[::-1]  # order does not matter


def test_accuracy_by_hand() -> None:
    arms = arm_table(by_hand()).set_index(["arm", "rule"])
    assert arms.loc[("fetch_all", "strict-1"), "accuracy"] == 0.75 and arms.loc[("a", "strict-1"), "correct"] == 5
    assert arms.loc[("a", "strict-1"), "unmarked"] == arms.loc[("a", "strict-1"), "fallback"] == 8
    assert arms.loc[("a", "last_number-1"), "unmarked"] == arms.loc[("a", "last_number-1"), "fallback"] == 0
    assert arms.loc[("a", "strict-1"), "miss_rate"] == pytest.approx(1 - 22 / 32)
    assert arms.loc[("a", "strict-1"), "mass"] == pytest.approx(5 / 16) and arms.loc[("a", "strict-1"), "truncated"] == 8
    assert arms.loc[("a", "strict-1"), "length"] == 2.5 and list(arms["primary"]) == [True, False] * 2


def test_differences_by_hand() -> None:
    measured = Measured(groups_of(by_hand()), STATS, ["a"])
    pairs = measured.paired().set_index("rule")
    strict = pairs.loc["strict-1"]
    assert strict["difference"] == pytest.approx(-1 / 8) and strict["gained"] == 1 and strict["lost"] == 2 and strict["templates"] == 4
    assert strict["low"] <= -1 / 8 <= strict["high"] and strict["low"] < strict["high"] and strict["mcnemar"] == 1.0
    assert strict["same_tokens"] == strict["same_text"] == 0.5 and strict["median_divergence"] == 1 and strict["length_difference"] == -0.5
    assert strict["token_agreement"] == pytest.approx((1 + 1 / 3) / 2) and strict["same_answer"] == 1.0
    assert pairs.loc["last_number-1", "difference"] == 0
    flips = measured.flips().iloc[0]
    assert flips["flips"] == 3 and flips["auc"] == pytest.approx(
        (3 * 4 * 0.5) / 15
    )  # p0 has more mass and does not flip; the other masses are equal
    lines = measured.survivals().set_index("position")["share"]
    assert lines.tolist() == [1.0, 1.0, 0.5, 0.5]
    assert measured.orders().empty  # one arm has no order
    with pytest.raises(UserError, match="arm a and fetch_all do not hold the same problems"):
        groups_of(by_hand()[:-1])


def test_divergence_and_agreement() -> None:
    assert first_divergence([1, 2, 3], [1, 2, 3]) is None
    assert first_divergence([1, 2, 3], [1, 4, 3]) == 1
    assert first_divergence([1, 2], [1, 2, 3]) == first_divergence([1, 2, 3], [1, 2]) == 2
    assert token_agreement([1, 2, 3, 4], [1, 9, 3]) == 0.5
    assert mcnemar(0, 0) == 1.0 and mcnemar(0, 6) == pytest.approx(2 / 64) and np.isclose(mcnemar(3, 5), mcnemar(5, 3))
