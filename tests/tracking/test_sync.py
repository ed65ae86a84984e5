"""The store says what results/ says: twice, after a rebuild, after a change, after a move."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from expertmiss.errors import UserError
from expertmiss.files import read_json, write_json
from expertmiss.provenance import write_run
from expertmiss.stages import Context
from expertmiss.tracking import content
from expertmiss.tracking.sync import run, sync
from tests.tracking.examples import LABELS, write_example

SLOT = "default/simulate_policies/builtin/prose"


def mirror(project: Path, descriptions: dict[str, str] | None = None) -> dict[str, int]:
    return sync(project / "results", project / "results" / "mlflow", descriptions or {})


def mirrored(project: Path, superseded: bool = False) -> dict:
    return content(project / "results" / "mlflow", superseded)


def current(project: Path, slot: str = SLOT) -> dict:
    key = read_json(project / "results" / slot / "run.json")["run_key"]
    return mirrored(project)[f"results/{slot} {key}"]


def test_a_run_carries_config_metrics_labels_and_artifacts(project: Path) -> None:
    assert mirror(project) == {"written": 3, "unchanged": 0, "superseded": 0, "repaired": 0}
    found = current(project)
    assert found["name"] == "simulate policies: builtin on prose"
    assert (found["parent"], found["status"]) == ("results/default/", "FINISHED")
    assert found["params"] == {"simulate.tau": "0.15", "simulate.capacities": "[16, 32]", "simulate.beta": "inf"}
    assert found["metrics"] == {"misses/share": 0.06, "seconds/simulate": 1.5}
    labels = {key: found["tags"][key] for key in ("substrate", "routing", "time", "host", "status", "n", "notes")}
    assert labels == {
        "substrate": "builtin_trained", "routing": "own", "time": "none", "host": "none", "status": "exploratory",
        "n": "40 documents, 20,480 tokens", "notes": "quick run",
    }  # fmt: skip
    outputs = read_json(project / "results" / SLOT / "run.json")["outputs"]
    figure = "figures/simulate_policies_builtin_prose.svg"
    assert set(found["artifacts"]) == {"cells.csv", figure, "run.json"}
    assert found["artifacts"][figure] == outputs[f"reports/default/{figure}"]


def test_one_top_level_run_per_experiment_explains_it(project: Path) -> None:
    index = project / "reports" / "default" / "index.html"
    index.write_text("<h1>report</h1>")
    write_run(
        index.parent, stage="render_report", experiment="default", name="report of default", config={}, source_hash="1", inputs=(),
        outputs=(), artifacts=[index], metrics={}, timings={}, labels=LABELS, started=datetime.now(UTC),
    )  # fmt: skip
    assert mirror(project, {"default": "Which misses may be substituted?"})["written"] == 4
    tops = {name: entry for name, entry in mirrored(project).items() if entry["parent"] is None}
    assert sorted(entry["name"] for entry in tops.values()) == ["experiment default", "experiment study"]
    note = next(entry["tags"]["mlflow.note.content"] for entry in tops.values() if entry["name"] == "experiment default")
    assert note.startswith("Which misses may be substituted?")
    assert "**Report:** `reports/default/index.html`" in note
    assert (
        "| simulate policies: builtin on prose | simulate_policies | exploratory | builtin_trained | 40 documents, 20,480 tokens |" in note
    )
    assert all(entry["tags"]["substrate"] == "builtin_trained" for entry in tops.values())
    report = next(entry for entry in mirrored(project).values() if entry["name"] == "report of default")
    assert (report["parent"], report["tags"]["folder"], set(report["artifacts"])) == (
        "results/default/",
        "reports/default",
        {"index.html", "run.json"},
    )


def test_a_committed_report_without_its_pages_or_results_is_left_out(project: Path) -> None:
    for experiment in ("study", "other"):
        index = project / "reports" / experiment / "index.html"
        index.parent.mkdir(exist_ok=True)
        index.write_text("<h1>report</h1>")
        write_run(
            index.parent, stage="render_report", experiment=experiment, name=f"report of {experiment}", config={}, source_hash="1", inputs=(),
            outputs=(), artifacts=[index], metrics={}, timings={}, labels=LABELS, started=datetime.now(UTC),
        )  # fmt: skip
    (project / "reports/study/index.html").unlink()
    assert mirror(project)["written"] == 3


def test_second_sync_changes_nothing_with_and_without_its_stamp(project: Path) -> None:
    mirror(project)
    before, database = mirrored(project), (project / "results/mlflow/mlflow.db").read_bytes()
    assert mirror(project)["unchanged"] == 3
    (project / "results/mlflow/synced.json").unlink()  # a workflow removes the outputs of a rule before it runs it
    assert mirror(project) == {"written": 0, "unchanged": 3, "superseded": 0, "repaired": 0}
    assert mirrored(project) == before
    assert (project / "results/mlflow/mlflow.db").read_bytes() == database


def test_one_changed_value_is_one_new_run_and_supersedes_the_old(project: Path) -> None:
    mirror(project)
    before = mirrored(project)
    write_example(project, SLOT, tau=0.2)
    assert mirror(project) == {"written": 1, "unchanged": 2, "superseded": 1, "repaired": 0}
    everything = mirrored(project, superseded=True)
    (new,) = set(everything) - set(before)
    old = next(entry for entry in everything.values() if "superseded" in entry["tags"])
    assert set(before) < set(everything)
    assert everything[new]["params"]["simulate.tau"] == "0.2"
    assert (old["name"], old["tags"]["superseded"], old["params"]["simulate.tau"]) == (
        "simulate policies: builtin on prose (superseded)", "true", "0.15",
    )  # fmt: skip
    assert old["tags"]["folder"] == everything[new]["tags"]["folder"] == f"results/{SLOT}"
    assert mirror(project)["superseded"] == 0


def test_a_value_set_back_revives_the_old_run(project: Path) -> None:
    mirror(project)
    before = mirrored(project)
    first = (project / "results" / SLOT / "run.json").read_bytes()
    write_example(project, SLOT, tau=0.2)
    mirror(project)
    write_example(project, SLOT)
    (project / "results" / SLOT / "run.json").write_bytes(first)
    assert mirror(project) == {"written": 0, "unchanged": 3, "superseded": 1, "repaired": 0}
    assert mirrored(project) == before


def test_a_repetition_of_a_run_replaces_it(project: Path) -> None:
    mirror(project)
    path = project / "results" / SLOT / "run.json"
    write_json(path, {**read_json(path), "timings": {"simulate": 2.5, "write": 0.5}})
    assert mirror(project)["written"] == 1
    assert current(project)["metrics"] == {"misses/share": 0.06, "seconds/simulate": 2.5, "seconds/write": 0.5}
    assert len(mirrored(project, superseded=True)) == 5


def test_results_that_are_gone_are_superseded_with_their_experiment(project: Path) -> None:
    mirror(project)
    shutil.rmtree(project / "results/study")
    assert mirror(project)["superseded"] == 2
    assert {entry["parent"] or entry["tags"]["folder"] for entry in mirrored(project).values()} == {"results/default/"}


def test_rebuilt_store_has_the_same_content(project: Path) -> None:
    mirror(project)
    write_example(project, SLOT, tau=0.2)
    mirror(project)
    before = mirrored(project)
    shutil.rmtree(project / "results/mlflow")
    mirror(project)
    assert mirrored(project, superseded=True) == before
    (project / "results/mlflow/mlflow.db").unlink()  # without the artifacts: they belonged to it
    mirror(project)
    assert mirrored(project, superseded=True) == before
    assert len(list((project / "results/mlflow/artifacts/expertmiss").iterdir())) == 3


def test_what_a_person_deletes_comes_back_and_their_own_runs_stay(project: Path) -> None:
    from expertmiss.tracking.store import Store

    mirror(project)
    before = mirrored(project)
    store = Store(project / "results/mlflow")
    for found in store.runs():
        if found.info.run_name == "experiment default" or found.data.tags["folder"] == f"results/{SLOT}":
            store.delete(found.info.run_id)
    own = store.client.create_run(store.experiment, run_name="somebody's own")
    mirror(project)
    after = mirrored(project)
    assert after.pop("None None")["name"] == "somebody's own"
    assert after == before
    assert own.info.run_id in {found.info.run_id for found in store.runs()}


def test_the_folder_may_move(project: Path) -> None:
    mirror(project)
    before = mirrored(project)
    moved = project.rename(project.with_name("elsewhere"))
    assert mirrored(moved) == before
    assert mirror(moved)["unchanged"] == 3
    write_example(moved, SLOT, tau=0.3)
    mirror(moved)
    assert "cells.csv" in current(moved)["artifacts"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_text("{"), "not a JSON file"),
        (lambda path: path.write_text("[]"), "its top level is not a mapping"),
        (lambda path: write_json(path, {**read_json(path), "schema": 99}), "schema is 99"),
        (lambda path: write_json(path, {**read_json(path), "run_key": None}), "run_key is None"),
        (lambda path: write_json(path, {**read_json(path), "metrics": {"share": "high"}}), "metrics.share is 'high'"),
        (lambda path: write_json(path, {**read_json(path), "name": "tau=0.15"}), "name 'tau=0.15'"),
        (lambda path: write_json(path, {**read_json(path), "started": "yesterday"}), "started is 'yesterday'"),
        (lambda path: write_json(path, {**read_json(path), "artifacts": ["../secret"]}), "artifact '../secret'"),
        (lambda path: write_json(path, {**read_json(path), "labels": {"substrate": "gpu"}}), "labels."),
        (lambda path: path.with_name("cells.csv").unlink(), "cells.csv is missing"),
        (lambda path: path.with_name("cells.csv").write_text("tau\n"), "cells.csv was changed after it"),
        (lambda path: write_json(path, {**read_json(path), "metrics": {"a//b": 1}}), "MLflow refuses it"),
    ],
)
def test_a_broken_run_is_named_in_one_line(project: Path, spoil: Callable[[Path], object], message: str) -> None:
    path = project / "results" / SLOT / "run.json"
    spoil(path)
    with pytest.raises(UserError) as refused:
        mirror(project)
    assert str(path) in str(refused.value)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_damaged_or_foreign_store_is_named(project: Path) -> None:
    store = project / "results/mlflow"
    (store / "mlflow.db").unlink()
    with pytest.raises(UserError, match=r"no such store; run the stage mlflow_sync"):
        content(store)
    mirror(project)
    good = (store / "mlflow.db").read_bytes()
    (store / "synced.json").unlink()
    for bad in (b"not a database, whatever its name says" * 100, b"", good[: len(good) // 2], good[:8192] + b"x" * 8192 + good[16384:]):
        (store / "mlflow.db").write_bytes(bad)
        with pytest.raises(UserError, match=r"mlflow\.db: .*; delete .*mlflow and run mlflow_sync again$"):
            mirror(project)
    (store / "mlflow.db").write_bytes(good)
    with closing(sqlite3.connect(store / "mlflow.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = 'of another release'")
    program = "import sys; from pathlib import Path; from expertmiss.tracking import content; content(Path(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", program, str(store)], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert "mlflow.db: cannot be opened" in last
    assert last.endswith("mlflow and run mlflow_sync again")


def test_stage_prints_its_counts_and_leaves_its_own_run(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = project / "results/mlflow"
    run({}, out=store, context=Context("default", "hash"), results=project / "results")
    assert capsys.readouterr() == (f"{store}: 3 written\n", "")
    assert read_json(store / "run.json")["metrics"] == {"repaired": 0, "superseded": 0, "unchanged": 0, "written": 3}
    assert mirror(project)["unchanged"] == 3, "the sync's own run.json is not one of the results"


def test_nothing_to_do_needs_no_mlflow(project: Path) -> None:
    mirror(project)
    program = (
        "import sys; from pathlib import Path; from expertmiss.tracking.sync import sync; "
        "print(sync(Path(sys.argv[1]), Path(sys.argv[1]) / 'mlflow', {})['unchanged'], 'mlflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(project / "results")], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("3 False\n", "")


def test_a_hundred_runs(tmp_path: Path) -> None:
    for experiment in ("one", "two"):
        for corpus in range(50):
            write_example(tmp_path, f"{experiment}/simulate_policies/builtin/corpus{corpus}", tau=corpus / 100)
    begin = time.monotonic()
    assert mirror(tmp_path)["written"] == 100
    print(json.dumps({"seconds for 100 runs": round(time.monotonic() - begin, 2)}))
    assert len(mirrored(tmp_path)) == 102
