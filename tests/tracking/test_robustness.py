"""kill -9 anywhere in a sync, two syncs at once, and arbitrary bytes where a run.json should be."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from expertmiss.errors import UserError
from expertmiss.tracking import content
from expertmiss.tracking.runs import read_runs
from expertmiss.tracking.sync import sync
from tests.tracking.examples import write_example

# Kills itself when a function is called for the n-th time.
KILLED = """
import os, signal, sys
from pathlib import Path
import mlflow, shutil
from expertmiss.tracking import store, sync

results, owner, name, calls = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
target = {"client": mlflow.MlflowClient, "store": store.Store, "shutil": shutil, "sync": sync}[owner]
original = getattr(target, name)

def deadly(*arguments, **keywords):
    global calls
    calls -= 1
    if calls == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*arguments, **keywords)

setattr(target, name, deadly)
sync.sync(results, results / "mlflow", {})
"""
PLAIN = "import sys; from pathlib import Path; from expertmiss.tracking.sync import sync; print(sync(Path(sys.argv[1]), Path(sys.argv[1]) / 'mlflow', {}))"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Results and the content of a store that was never disturbed."""
    root = tmp_path_factory.mktemp("undisturbed")
    for corpus in ("prose", "code"):
        write_example(root, f"default/simulate_policies/builtin/{corpus}")
    sync(root / "results", root / "results/mlflow", {})
    return root, content(root / "results/mlflow")


@pytest.mark.parametrize(
    ("owner", "name", "calls"),
    [
        ("client", "set_experiment_tag", 1),  # the database is migrated, but not yet under its name
        ("client", "set_terminated", 1),  # the parent is unfinished
        ("client", "log_batch", 2),  # the second child has tags only
        ("shutil", "copyfile", 2),  # some of the artifacts are there
        ("client", "set_terminated", 3),  # the last child is complete but for its status
        ("sync", "write_json", 1),  # all but the stamp
    ],
)
def test_a_killed_sync_is_completed_by_the_next(
    expected: tuple[Path, dict[str, Any]], tmp_path: Path, owner: str, name: str, calls: int
) -> None:
    root, undisturbed = expected
    for part in ("results/default", "reports"):
        shutil.copytree(root / part, tmp_path / part)
    results = tmp_path / "results"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(results), owner, name, str(calls)], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (results / "mlflow/synced.json").exists()
    sync(results, results / "mlflow", {})
    assert content(results / "mlflow", superseded=True) == undisturbed
    assert len(list((results / "mlflow/artifacts/expertmiss").iterdir())) == 2, "artifacts of the incomplete run are gone"
    assert not list((results / "mlflow").glob(".mlflow.db.*"))


def test_two_syncs_at_once_take_turns(expected: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    root, undisturbed = expected
    for part in ("results/default", "reports"):
        shutil.copytree(root / part, tmp_path / part)
    results = tmp_path / "results"
    both = [
        subprocess.Popen([sys.executable, "-c", PLAIN, str(results)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in "12"
    ]
    answers = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert sorted(int(output.split("'written': ")[1][0]) for output, _ in answers) == [0, 2]
    assert {line for _, errors in answers for line in errors.splitlines()} <= {f"{results}/mlflow: another sync is running; waiting for it"}
    assert content(results / "mlflow", superseded=True) == undisturbed


def test_a_sync_waits_for_the_one_that_holds_the_store(expected: tuple[Path, dict[str, Any]]) -> None:
    from expertmiss.tracking.store import locked

    results = expected[0] / "results"
    with locked(results / "mlflow"):
        waiting = subprocess.Popen([sys.executable, "-c", PLAIN, str(results)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert waiting.stderr is not None
        assert "another sync is running" in waiting.stderr.readline()
        time.sleep(0.3)
        assert waiting.poll() is None
    assert "'unchanged': 2" in waiting.communicate(timeout=60)[0]


@pytest.mark.parametrize("lock", ["EXCLUSIVE", "IMMEDIATE"])  # nobody else reads; nobody else writes
def test_a_database_in_use_is_not_called_damaged(
    expected: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    from expertmiss.tracking import store

    root, _ = expected
    for part in ("results", "reports"):
        shutil.copytree(root / part, tmp_path / part)
    results = tmp_path / "results"
    write_example(tmp_path, "default/simulate_policies/builtin/records")
    monkeypatch.setattr(store, "BUSY_SECONDS", 0.1)
    with closing(sqlite3.connect(results / "mlflow/mlflow.db", isolation_level=None)) as other:
        other.execute(f"BEGIN {lock}")
        with pytest.raises(UserError, match="in use by another program; wait") as refused:
            sync(results, results / "mlflow", {})
    assert "delete" not in str(refused.value)
    assert sync(results, results / "mlflow", {})["written"] == 1


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_in_any_field_is_read_or_refused_by_name(project: Path, data: st.DataObject) -> None:
    path = project / "results/default/simulate_policies/builtin/prose/run.json"
    original = path.read_bytes()
    try:
        run = json.loads(original)
        place = run["labels"] if data.draw(st.booleans(), "in labels") else run
        place[data.draw(st.sampled_from(sorted(place)) | st.text(max_size=8), "field")] = data.draw(values, "value")
        path.write_text(json.dumps(run))
        try:
            assert len(read_runs(project / "results", project / "results/mlflow")) == 3
        except UserError as refused:
            assert str(path) in str(refused)
    finally:
        path.write_bytes(original)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(max_size=64), cut=st.integers(0, 400))
def test_truncated_and_foreign_bytes_are_refused_by_name(project: Path, noise: bytes, cut: int) -> None:
    path = project / "results/default/simulate_policies/builtin/prose/run.json"
    original = path.read_bytes()
    try:
        path.write_bytes(original[:cut] + noise)
        with pytest.raises(UserError, match=r"run\.json"):
            read_runs(project / "results", project / "results/mlflow")
    finally:
        path.write_bytes(original)
