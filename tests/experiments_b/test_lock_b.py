"""The lock of Experiment B: every way to tamper with it is one clear sentence, and what may change changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from expertmiss.errors import UserError
from expertmiss.experiments.b import confirm, decide, pilot
from expertmiss.experiments.b.plan import DECISION, NAME, PLAN
from expertmiss.experiments.b.register import check_experiment
from expertmiss.experiments.lock import CHANGED, DEVIATIONS, LOCK, accept, lock, stands, verify
from expertmiss.files import read_json, sha256_file, write_json
from expertmiss.provenance import Labels
from expertmiss.stats.tables import read_table
from expertmiss.tracking.describe import tags
from expertmiss.tracking.runs import Run
from tests.experiments_b.tiny_b import lock_project, make_project, propose_anyway, run_confirmatory, run_decision, run_pilot

RESULT = f"prereg/{NAME}.result.json"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A project whose pilot, lock, confirmatory run and decision are done."""
    project = make_project(tmp_path_factory.mktemp("b"))
    with pytest.MonkeyPatch.context() as patch:
        for module in (pilot, confirm, decide):
            patch.setattr(module, "project_root", lambda: project["root"])
        project["proposal"] = run_pilot(project)
        with pytest.raises(UserError, match="not locked") as caught:
            run_confirmatory(project)
        project["unlocked"] = str(caught.value)
        if project["proposal"]["refusal"]:
            with pytest.raises(UserError, match="nothing is locked"):
                lock_project(project)
        propose_anyway(project)
        project["entry"] = lock_project(project)
        run_confirmatory(project)
        project["result"] = read_json(run_decision(project) / "result.json")
        yield project


@pytest.fixture
def project(finished: dict[str, Any]) -> Any:
    """The finished project; whatever a test changes in it is put back."""
    kept = [path for folder in ("prereg", "models", "results") for path in (finished["root"] / folder).rglob("*") if path.is_file()]
    content = {path: path.read_bytes() for path in kept if path.suffix != ".safetensors" or "models" in path.parts}
    yield finished
    for path, data in content.items():
        path.write_bytes(data)
    (finished["root"] / RESULT).unlink(missing_ok=True)


def test_without_a_lock_nothing_runs(finished: dict[str, Any]) -> None:
    assert "expertmiss prereg lock experiment_b" in finished["unlocked"] and "\n" not in finished["unlocked"]


def test_the_lock_holds_everything(finished: dict[str, Any]) -> None:
    entry = finished["entry"]
    assert len(entry["documents"]) == 12 and len(entry["files"]) == 3 and len(entry["rows"]) == 14
    assert set(entry["numbers"]) == {"classes", "mu", "delta", "n", "loss", "capacity"}
    assert check_experiment(finished["root"], "b", "builtin").startswith("confirmatory, unchanged: 12 documents")


def test_outputs_carry_the_lock(finished: dict[str, Any]) -> None:
    digest = verify(finished["root"], NAME)
    folder = finished["here"] / "run_experiment_b" / "builtin" / "builtin_b"
    assert set(pd.read_parquet(folder / "cells.parquet")["lock"]) == {digest}
    for stage in ("run_experiment_b", "decide_experiment_b"):
        run = read_json(finished["here"] / stage / "builtin" / "builtin_b" / "run.json")
        assert run["config"]["lock"] == digest and run["labels"]["status"] == "confirmatory"
        assert tags(Run(folder, stage, run, Labels.of(run["labels"])), "")["lock"] == digest
    assert finished["result"]["lock"] == digest


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def change_document(project: dict[str, Any], drop: bool) -> None:
    path = project["files"]["tokens"]
    table = pd.read_parquet(path)
    name = int(next(iter(project["entry"]["documents"])))
    if drop:
        table = table[table["document"] != name]
    else:
        row = table.index[table["document"] == name][0]
        words = list(table.at[row, "tokens"])
        table.at[row, "tokens"] = [words[1], words[0], *words[2:]]
        assert words[0] != words[1]
    table.to_parquet(path)


def change_model(project: dict[str, Any]) -> None:
    path = project["root"] / "models" / "builtin" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def change_numbers(project: dict[str, Any]) -> None:
    path = project["root"] / LOCK
    entries = read_json(path)
    entries[f"{NAME}/builtin"]["numbers"]["mu"]["mu_2"][0] *= 2
    write_json(path, entries)


TAMPERED = {
    "edited plan": (lambda p: edit(p["root"] / PLAN, "documents_share: 0.8", "documents_share: 0.5"), f"{PLAN}: changed since it was locked"),
    "edited words": (lambda p: edit(p["root"] / "prereg/experiment_b.md", "heavy", "light"), "experiment_b.md: changed since it was locked"),
    "edited decision": (lambda p: edit(p["root"] / DECISION, "low > 0", "low > -1"), f"{DECISION}: changed since it was locked"),
    "missing decision": (lambda p: (p["root"] / DECISION).unlink(), "no such file"),
    "another model": (change_model, "the model is another one"),
    "changed document": (lambda p: change_document(p, drop=False), "differs from the locked one"),
    "missing document": (lambda p: change_document(p, drop=True), "is locked .* and missing"),
    "other levels": (change_numbers, "the policies and arms are others"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "message"), TAMPERED.values(), ids=list(TAMPERED))
def test_tampering_is_one_clear_sentence(project: dict[str, Any], change: Any, message: str) -> None:
    change(project)
    for call in (run_confirmatory, lambda project: check_experiment(project["root"], "b", "builtin")):
        with pytest.raises(UserError, match=message) as caught:
            call(project)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["edited plan", "edited decision", "missing decision"])
def test_the_decision_refuses_changed_files_too(project: dict[str, Any], name: str) -> None:
    change, message = TAMPERED[name]
    change(project)
    with pytest.raises(UserError, match=message):
        run_decision(project)


def test_locking_again_does_not_hide_a_change(project: dict[str, Any]) -> None:
    assert lock_project(project) == project["entry"]
    edit(project["root"] / DECISION, "low > 0", "low > -1")
    with pytest.raises(UserError, match="run the pilot again"):
        lock_project(project)


def test_a_foreign_output_is_refused(project: dict[str, Any]) -> None:
    path = project["here"] / "run_experiment_b" / "builtin" / "builtin_b" / "cells.parquet"
    pd.read_parquet(path).assign(lock="0" * 64).to_parquet(path)
    with pytest.raises(UserError, match="made under another lock") as caught:
        run_decision(project)
    assert "\n" not in str(caught.value)


def test_a_missing_cell_has_no_verdict(project: dict[str, Any]) -> None:
    path = project["here"] / "run_experiment_b" / "builtin" / "builtin_b" / "cells.parquet"
    frame = pd.read_parquet(path)
    frame[frame["document"] != frame["document"].iloc[0]].to_parquet(path)
    found = read_json(run_decision(project) / "result.json")
    assert found["verdict"] == "no_verdict" and "is missing" in found["reason"]


def test_the_first_result_is_kept_and_later_ones_are_compared(project: dict[str, Any]) -> None:
    root, result = project["root"], project["result"]
    with pytest.raises(UserError, match="another lock"):
        accept(root, NAME, "builtin", result | {"lock": "0" * 64})
    with pytest.raises(UserError, match="lacks"):
        accept(root, NAME, "builtin", {"verdict": "equivalent"})
    assert not (root / RESULT).exists()
    assert accept(root, NAME, "builtin", result) == "accepted" and read_json(root / RESULT) == result
    assert accept(root, NAME, "builtin", result | {"estimate": result["estimate"] + 5e-5}).startswith("agrees")
    with pytest.raises(UserError, match="from the accepted one"):
        accept(root, NAME, "builtin", result | {"estimate": result["estimate"] + 2e-4})
    with pytest.raises(UserError, match="accepted verdict"):
        accept(root, NAME, "builtin", result | {"verdict": "light_worse"})
    run_decision(project)  # a re-computation agrees
    write_json(root / RESULT, result | {"verdict": "other"})
    with pytest.raises(UserError, match="accepted verdict"):
        run_decision(project)


def test_a_plan_changed_after_its_result_is_exploratory_and_written_down(project: dict[str, Any]) -> None:
    root = project["root"]
    accept(root, NAME, "builtin", project["result"])
    edit(root / PLAN, "min_sources: 6", "min_sources: 7")
    digest = sha256_file(root / PLAN)[:12]
    with pytest.raises(UserError, match=f"after its result; restore the file, or add .*{digest}"):
        stands(root, NAME)
    (root / DEVIATIONS).write_text(f"- 2026-12-01 {NAME} {PLAN} {'0' * 12}: another change\n")
    with pytest.raises(UserError, match="after its result"):
        stands(root, NAME)
    (root / DEVIATIONS).write_text(f"- 2026-12-01 {NAME} {PLAN} {digest}: more sources are needed\n")
    assert stands(root, NAME).status == CHANGED
    labels = read_table(run_decision(project) / "b_effects.parquet").labels
    assert labels.status == "exploratory" and CHANGED in labels.notes


def test_one_lock_a_profile(project: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="'experiment_b/other' is not locked"):
        stands(project["root"], NAME, "other")
    with pytest.raises(UserError, match="with a sample"):
        lock(project["root"], NAME)


def test_the_pilot_must_fit(project: dict[str, Any]) -> None:
    path = project["here"] / "pilot_experiment_b" / "builtin" / "builtin_b" / "proposal.json"
    proposal = read_json(path)
    (project["root"] / LOCK).unlink()
    for change, message in (
        ({"refusal": "no margin"}, "nothing is locked: no margin"), ({"n": 400}, "needs 400 documents, split 'confirmatory' holds 16"),
        ({"n": 8, "model": "0" * 64}, "ran another model"), ({"plan": "0" * 64}, "changed since the pilot ran"),
    ):  # fmt: skip
        write_json(path, proposal | change)
        with pytest.raises(UserError, match=message):
            lock_project(project)
    plan = yaml.safe_load((project["root"] / PLAN).read_text())
    (project["root"] / PLAN).write_text(yaml.safe_dump(plan | {"min_sources": 9}))
    write_json(path, proposal | {"plan": sha256_file(project["root"] / PLAN)})
    with pytest.raises(UserError, match="6 sources, 9 are needed"):
        lock_project(project)
    assert not (project["root"] / LOCK).exists()
    path.unlink()
    with pytest.raises(UserError, match="run the pilot first"):
        lock_project(project)
