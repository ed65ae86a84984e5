"""A project folder to mirror."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from expertmiss.tracking.sync import sync
from tests.tracking.examples import write_example


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of no runs: its migrations take a second, which not every test has to wait for."""
    results = tmp_path_factory.mktemp("empty") / "results"
    sync(results, results / "mlflow", {})
    return results / "mlflow" / "mlflow.db"


@pytest.fixture
def project(tmp_path: Path, empty_database: Path) -> Path:
    """A project folder, its name with a space, that holds three runs of two experiments and an empty store."""
    root = tmp_path / "a project"
    for slot in ("default/simulate_policies/builtin/prose", "default/make_figures/builtin/prose", "study/simulate_policies/builtin/prose"):
        write_example(root, slot)
    (root / "results/mlflow").mkdir()
    shutil.copyfile(empty_database, root / "results/mlflow/mlflow.db")
    return root
