"""Stages generate_answers and compare_answers, on a tiny model and by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from expertmiss.config.compose import load_policy
from expertmiss.errors import UserError
from expertmiss.generate import compare, stage
from expertmiss.generate import problems as generate_problems
from expertmiss.generate.arms import ArmDecoder
from expertmiss.generate.paired import first_divergence, mcnemar, token_agreement
from expertmiss.generate.problems import read_items
from expertmiss.generate.solve import solve
from expertmiss.models.load import load_model
from expertmiss.stages import Context
from tests.generate.conftest import model_section

ROOT = Path(__file__).parents[2]
ARMS = ("substitute_all", "fetch_all", "quality_first")
STATS = {"resamples": 200, "confidence": 0.95, "seed": 1, "min_clusters": 2}
CONTEXT = Context("test", "hash")


@pytest.fixture(autouse=True)
def no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate_problems, "find_sandbox", lambda limits, allow_weak: (None, "none here"))


def configuration(folder: Path, **changed: Any) -> dict[str, Any]:
    generate = {
        "batch": 3, "word_problem_tokens": 12, "function_tokens": 16, "split": "pilot", "problems": 4, "arms": list(ARMS), "residency": 0.375, "rows": 6,
        "threads": 1,
    }  # fmt: skip
    return {
        "model": model_section(folder), "host": {"name": "this_host"}, "corpus": {"name": "tiny"}, "generate": {**generate, **changed},
        "sandbox": {"seconds": 5.0, "memory_mib": 512, "processes": 4, "allow_weak": False}, "arms": {name: load_policy(ROOT, name) for name in ARMS},
    }  # fmt: skip


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
        stage.run(configuration(tiny_folder), out=out, context=CONTEXT, **inputs)
    assert calls == [2, 2, 2] and not (out / "run.json").exists()
    stage.run(configuration(tiny_folder), out=out, context=CONTEXT, **inputs)
    assert calls == [2, 2, 2, 2, 2]  # two of four batches were there
    rows = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    assert len(rows) == 2 * 4 * 3 and {row["arm"] for row in rows} == set(ARMS) and {row["capacity"] for row in rows} == {6}
    assert not list((out / ".parts").rglob("*.jsonl"))
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
    assert any(row["meters"]["mass"] > 0 for row in rows)
    compare.run({"stats": STATS}, out=tmp_path / "results" / "compared", context=CONTEXT, answers=out / "answers.jsonl")
    arms = pd.read_parquet(tmp_path / "results" / "compared" / "arms.parquet")
    assert set(arms["task"]) == {"word_problems"} and len(arms) == 3 * 2  # functions were not measured
    run = json.loads((tmp_path / "results" / "compared" / "run.json").read_text())
    assert run["labels"]["substrate"] == "random_weights" and run["labels"]["n"] == {"problems": 8, "templates": 6}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rows": 2}, "generate.rows: 2 rows do not hold 3 arms"),
        ({"split": "generation"}, "no problem of split 'generation' \\(present: exploratory, pilot\\); add it to corpus.splits"),
        ({"residency": 0.1}, "C = 2, but K <= C <= E must hold"),
        ({"function_tokens": 64}, "the model reads 64; lower the cap of task functions"),
    ],
)
def test_what_cannot_be_run_is_refused(
    tiny_folder: Path, calibration: Path, problems: Path, tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        stage.run(
            configuration(tiny_folder, **changed),
            out=tmp_path / "results" / "out",
            context=CONTEXT,
            problems=problems,
            calibration=calibration,
        )


def test_a_reference_and_problems_are_needed(tiny_folder: Path, calibration: Path, problems: Path, tmp_path: Path) -> None:
    cfg = configuration(tiny_folder)
    del cfg["arms"]["fetch_all"]
    with pytest.raises(UserError, match=r"generate\.arms: fetch_all is missing"):
        stage.run(cfg, out=tmp_path / "results" / "out", context=CONTEXT, problems=problems, calibration=calibration)
    pd.read_parquet(problems).head(0).to_parquet(tmp_path / "none.parquet")
    with pytest.raises(UserError, match="this corpus has no problems with answers"):
        stage.run(
            configuration(tiny_folder),
            out=tmp_path / "results" / "out",
            context=CONTEXT,
            problems=tmp_path / "none.parquet",
            calibration=calibration,
        )


def made(problem: int, arm: str, right: bool, tokens: list[int], hits: int = 3) -> dict[str, Any]:
    meters = {"calls": 4, "hits": hits, "tokens": 2, "mass": 0.5 * (4 - hits)}
    return {
        "problem": f"p{problem}", "task": "word_problems", "source": f"t{problem // 2}", "tokens": tokens, "text": str(tokens), "finish": "cap",
        "answers": {"strict-1": None, "last_number-1": "7"}, "correct": {"strict-1": right, "last_number-1": True}, "status": "", "arm": arm, "meters": meters,
    }  # fmt: skip


def test_comparison_by_hand() -> None:
    reference = [made(i, "fetch_all", i < 6, [1, 2, 3], 4) for i in range(8)]
    arm = [made(i, "a", i in (0, 1, 2, 3, 7), [1, 2, 3] if i < 4 else [1, 9], 3 if i else 1) for i in range(8)]
    rows = arm + reference[::-1]  # order does not matter
    arms = compare.arm_table(rows).set_index(["arm", "rule"])
    assert arms.loc[("fetch_all", "strict-1"), "accuracy"] == 0.75 and arms.loc[("a", "strict-1"), "correct"] == 5
    assert arms.loc[("a", "strict-1"), "unmarked"] == 8 and arms.loc[("a", "last_number-1"), "unmarked"] == 0
    assert arms.loc[("a", "strict-1"), "miss_rate"] == pytest.approx(1 - 22 / 32) and arms.loc[("a", "strict-1"), "mass"] == pytest.approx(
        5 / 16
    )
    assert arms.loc[("a", "strict-1"), "length"] == 2.5 and list(arms["primary"]) == [True, False] * 2
    pairs = compare.paired_table(rows, STATS).set_index("rule")
    strict = pairs.loc["strict-1"]
    assert strict["difference"] == pytest.approx(-1 / 8) and strict["gained"] == 1 and strict["lost"] == 2 and strict["templates"] == 4
    assert strict["low"] <= -1 / 8 <= strict["high"] and strict["low"] < strict["high"] and strict["mcnemar"] == 1.0
    assert strict["same_tokens"] == 0.5 and strict["median_divergence"] == 1 and strict["token_agreement"] == pytest.approx((1 + 1 / 3) / 2)
    assert pairs.loc["last_number-1", "difference"] == 0
    with pytest.raises(UserError, match="arm a and fetch_all do not hold the same problems"):
        compare.paired_table(rows[:-1], STATS)


def test_divergence_and_agreement() -> None:
    assert first_divergence([1, 2, 3], [1, 2, 3]) is None
    assert first_divergence([1, 2, 3], [1, 4, 3]) == 1
    assert first_divergence([1, 2], [1, 2, 3]) == first_divergence([1, 2, 3], [1, 2]) == 2
    assert token_agreement([1, 2, 3, 4], [1, 9, 3]) == 0.5
    assert mcnemar(0, 0) == 1.0 and mcnemar(0, 6) == pytest.approx(2 / 64) and np.isclose(mcnemar(3, 5), mcnemar(5, 3))
