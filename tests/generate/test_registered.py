"""The lock of the generation test: what it holds, what is refused under it, and what outputs carry."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from expertmiss.config import compose, section
from expertmiss.errors import UserError
from expertmiss.experiments.lock import LOCK, accept, is_locked
from expertmiss.files import read_json, write_json
from expertmiss.generate import build, compare, register, stage
from expertmiss.generate import problems as generate_problems
from expertmiss.generate.plan import NAME, NONE, PLAN, lock_in_force
from expertmiss.stages import Context
from expertmiss.stats.tables import read_table

ROOT = Path(__file__).parents[2]
CONTEXT = Context("study", "hash")
ARMS = ["fetch_all", "rule_015", "substitute_all"]


@pytest.fixture
def root(tiny_folder: Path, problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose plan is small: three arms, four problems of each task, a tiny model."""
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "config", folder / "config")
    (folder / "prereg").mkdir()
    for name in ("generation.yaml", "generation.md", "decide_generation.py"):
        shutil.copy2(ROOT / "prereg" / name, folder / "prereg" / name)
    shutil.copytree(tiny_folder, folder / "models" / "builtin")
    plan = yaml.safe_load((folder / PLAN).read_text())
    plan |= {"problems": 4, "residency": 0.375, "arms": ARMS, "order_arms": ARMS[1:]}
    plan["rules"] |= {"min_problems": 4, "min_templates": 2}
    for name, cap in (("word_problems", 12), ("functions", 16)):
        plan["tasks"][name]["tokens"] = cap
        file = folder / "config" / "task" / f"{name}.yaml"
        file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "tokens": cap}))
    (folder / PLAN).write_text(yaml.safe_dump(plan))
    study = folder / "config" / "experiment" / "study.yaml"
    study.write_text(
        "# @package _global_\nsimulate: {policies: [fetch_all]}\n"
        f"generate: {{registered: true, problems: 4, residency: 0.375, rows: 6, threads: 1, arms: [{', '.join(ARMS)}]}}\n"
    )
    table = pd.read_parquet(problems)
    for module in (build, register):
        monkeypatch.setattr(module, "problem_table", lambda tasks, corpus, split, most: table.assign(split=split))
    for module in (build, stage, compare):
        monkeypatch.setattr(module, "project_root", lambda: folder)
    monkeypatch.setattr(generate_problems, "find_sandbox", lambda limits, allow_weak: (None, "none here"))
    return folder


def locked(root: Path) -> str:
    register.lock_generation(root, "study", "builtin")
    return lock_in_force(root, compose(root, "study"))


def slices(root: Path, *overrides: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Configuration of generate_answers and compare_answers."""
    config = compose(root, "study", overrides=["stats.resamples=200", "stats.min_clusters=2", *overrides])
    answers = section(config, "generate_answers")
    answers["model"]["path"] = str(root / "models" / "builtin")
    compared = section(config, "compare_answers")
    compared["report"]["quick"] = False
    return answers, compared


def answered(
    root: Path, calibration: Path, lock: str, change: Callable[[pd.DataFrame], pd.DataFrame] | None = None, *overrides: str
) -> Path:
    """Run build_tasks and generate_answers; the folder of results."""
    here = root / "results" / "study"
    build.run(section(compose(root, "study"), "build_tasks"), out=here / "tasks", context=CONTEXT, lock=lock)
    if change:
        path = here / "tasks" / "problems.parquet"
        change(pd.read_parquet(path)).to_parquet(path)
    cfg, _ = slices(root, *overrides)
    stage.run(cfg, out=here / "answers", context=CONTEXT, problems=here / "tasks" / "problems.parquet", calibration=calibration, lock=lock)
    return here


def compared(root: Path, here: Path, lock: str) -> Path:
    compare.run(
        slices(root)[1], out=here / "compared", context=CONTEXT, answers=here / "answers" / "answers.jsonl", problems=here / "tasks" / "problems.parquet",
        lock=lock,
    )  # fmt: skip
    return here / "compared"


def test_the_lock_holds_everything(root: Path) -> None:
    assert not is_locked(root, NAME) and lock_in_force(root, compose(root, "study")) == NONE
    entry = register.lock_generation(root, "study", "builtin")
    assert len(entry["files"]) == 3 and len(entry["documents"]) == 8 and entry["model"]
    assert [row.get("arm") for row in entry["rows"]] == [None, *sorted(ARMS), None, None]
    assert register.check_generation(root, "study", "builtin").startswith("confirmatory, unchanged: 8 problems")
    digest = lock_in_force(root, compose(root, "study"))
    assert len(digest) == 64 and lock_in_force(root, compose(root, "default")) == NONE
    assert register.lock_generation(root, "study", "builtin") == entry  # written once


def test_outputs_carry_the_lock_and_the_result_is_kept(root: Path, calibration: Path) -> None:
    digest = locked(root)
    out = compared(root, here := answered(root, calibration, digest), digest)
    for name in ("tasks", "answers", "compared"):
        assert read_json(here / name / "run.json")["config"]["lock"] == digest
    for name in ("answers", "compared"):
        assert read_json(here / name / "run.json")["labels"]["status"] == "confirmatory"
    table = read_table(out / "e7_predictions.parquet")
    assert set(table.frame["lock"]) == {digest} and table.labels.status == "confirmatory"
    assert set(table.frame["verdict"]) <= {"held", "failed", "undecided"}
    result = read_json(out / "result.json")
    assert result["lock"] == digest and result["verdict"].startswith("W1 undecided, W2 undecided")
    assert accept(root, NAME, "builtin", result) == "accepted"
    compared(root, here, digest)  # agrees
    with pytest.raises(UserError, match="the accepted verdict is"):
        accept(root, NAME, "builtin", {**result, "verdict": "W1 held"})


def test_without_a_lock_the_same_is_exploratory(root: Path, calibration: Path) -> None:
    here = answered(root, calibration, NONE)
    assert set(pd.read_parquet(here / "tasks" / "problems.parquet")["split"]) == {"pilot"}
    out = compared(root, here, NONE)
    table = read_table(out / "e7_predictions.parquet")
    assert table.labels.status == "exploratory" and not (out / "result.json").exists()
    assert table.frame["verdict"].str.fullmatch(r"(held|failed|undecided) \(exploratory\)").all()
    digest = locked(root)
    with pytest.raises(UserError, match="made under another lock"):
        compared(root, here, digest)


def test_answers_of_a_lock_are_refused_without_it(root: Path, calibration: Path) -> None:
    digest = locked(root)
    here = answered(root, calibration, digest)
    (root / LOCK).unlink()
    with pytest.raises(UserError, match=r"made under lock .* this run has none"):
        compared(root, here, NONE)


def change_prompt(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(prompt=[f"{prompt}!" if place == 3 else prompt for place, prompt in enumerate(table["prompt"])])


def change_model(root: Path) -> None:
    path = root / "models" / "builtin" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def change_numbers(root: Path) -> None:
    entries = read_json(root / LOCK)
    entries[f"{NAME}/builtin"]["documents"]["word_problems/0"] = "0" * 64
    write_json(root / LOCK, entries)


def append(name: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        path = root / name
        path.write_text(path.read_text() + "\n# changed\n")

    return change


@pytest.mark.parametrize(
    ("tamper", "change", "message"),
    [
        (append(PLAN), None, f"{PLAN}: changed since it was locked"),
        (append("prereg/generation.md"), None, "generation.md: changed since it was locked"),
        (append("prereg/decide_generation.py"), None, "decide_generation.py: changed since it was locked"),
        (change_model, None, "the model is another one"),
        (change_numbers, None, "document word_problems/0 differs from the locked one"),
        (None, change_prompt, "document word_problems/3 differs from the locked one"),
        (None, lambda table: table.iloc[1:], "document word_problems/0 is locked .* and missing"),
    ],
)
def test_whatever_differs_is_refused(
    root: Path,
    calibration: Path,
    tamper: Callable[[Path], None] | None,
    change: Callable[[pd.DataFrame], pd.DataFrame] | None,
    message: str,
) -> None:
    digest = locked(root)
    if tamper:
        tamper(root)
    with pytest.raises(UserError, match=message) as caught:
        answered(root, calibration, digest, change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("generate.residency=0.5", "generate.residency: 0.5 is not the registered 0.375"),
        ("generate.arms=[fetch_all,rule_015]", "generate.arms: .* is not the registered"),
        ("generate.run_on=engine", "generate.run_on: engine is not the registered emulator"),
        ("generate.problems=3", "generate.problems: 3 is not the registered 4"),
        ("generate.tasks=[word_problems]", "generate.tasks: .* is not the registered"),
    ],
)
def test_another_configuration_is_not_registered(root: Path, override: str, message: str) -> None:
    locked(root)
    changed = compose(root, "study", overrides=[override])
    with pytest.raises(UserError, match=message):
        lock_in_force(root, changed)
    changed["generate"]["registered"] = False
    assert lock_in_force(root, changed) == NONE


def test_another_policy_of_an_arm_is_refused(root: Path, calibration: Path) -> None:
    digest = locked(root)
    file = root / "config" / "policy" / "rule_015.yaml"
    file.write_text(file.read_text().replace("0.15}", "0.2}"))
    with pytest.raises(UserError, match="the policies and arms are others than were locked"):
        answered(root, calibration, digest)


def test_too_few_problems_are_not_locked(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = register.problem_table({}, {}, "generation", 4)
    monkeypatch.setattr(register, "problem_table", lambda tasks, corpus, split, most: table.iloc[1:])
    with pytest.raises(UserError, match="nothing is locked: task word_problems has 3 problems, 4 are needed"):
        register.lock_generation(root, "study", "builtin")
    assert not is_locked(root, NAME)
