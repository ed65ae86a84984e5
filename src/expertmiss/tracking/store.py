"""The MLflow store: one SQLite file and one folder of artifacts. The only module that imports mlflow.

Artifact locations are ``mlflow-artifacts:/...``, which ``expertmiss ui`` resolves against the store's folder when it starts. So the database
holds no path and the repository may move. Only a server resolves them; a client opened on the SQLite file itself reads everything else.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import sqlite3
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from expertmiss.errors import UserError

DATABASE, ARTIFACTS, EXPERIMENT = "mlflow.db", "artifacts", "expertmiss"
BUSY_SECONDS = 5.0  # how long a database that another process writes is waited for
BATCH = 100  # MLflow takes at most 100 parameters and 100 tags a call
EXPERIMENT_NOTE = (
    "Which expert misses are worth waiting for? One run per experiment, with its stages nested in it. "
    "A mirror of `results/`: edits made here are lost when it is rebuilt."
)


def quiet() -> None:
    """Before mlflow is imported: no usage reports, no notices about migrations, no search for git, no connection kept open to a
    database that is renamed or deleted."""
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = os.environ["DO_NOT_TRACK"] = "true"
    os.environ["MLFLOW_SQLALCHEMYSTORE_POOLCLASS"] = "NullPool"
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    for name in ("alembic", "mlflow", "sqlalchemy"):
        logging.getLogger(name).setLevel(logging.WARNING)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the store for this process; others wait. The kernel frees the lock of a killed process."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{folder}: another sync is running; waiting for it", file=sys.stderr)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


class Store:
    """Reads and writes the runs of one MLflow experiment.

    Args:
        folder: holds ``mlflow.db`` and ``artifacts/``.
        create: make the database where there is none.

    Raises:
        UserError: there is no database, it is in use, or it is damaged or of another MLflow version.
    """

    def __init__(self, folder: Path, create: bool = False) -> None:
        quiet()
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
        from sqlalchemy import Engine, event
        from sqlalchemy.exc import SQLAlchemyError

        if not event.contains(Engine, "connect", _do_not_wait_for_the_disk):
            event.listen(Engine, "connect", _do_not_wait_for_the_disk)
        self.folder = folder.absolute()
        self.database = self.folder / DATABASE
        if not self.database.exists():
            if not create:
                raise UserError(f"{self.database}: no such store; run the stage mlflow_sync first")
            self._create(MlflowClient)
        try:
            _check(self.database)
            self.client = MlflowClient(_uri(self.database))
            experiment = self.client.get_experiment_by_name(EXPERIMENT)
        except (MlflowException, SQLAlchemyError, sqlite3.Error) as problem:
            if is_busy(problem):
                raise busy(self.database) from problem
            first = str(problem).strip().splitlines()[0]
            raise UserError(f"{self.database}: cannot be opened ({first}); delete {self.folder} and run mlflow_sync again") from problem
        if experiment is None or experiment.lifecycle_stage != "active":
            raise UserError(f"{self.database}: has no experiment '{EXPERIMENT}'; delete {self.folder} and run mlflow_sync again")
        self.experiment: str = experiment.experiment_id

    def _create(self, client_type: Any) -> None:
        # The migrations take a second and cannot be resumed: they run under another name, and the rename makes the store exist.
        for leftover in self.folder.glob(f".{DATABASE}.*"):
            leftover.unlink()
        fresh = self.database.with_name(f".{DATABASE}.{uuid.uuid4().hex}")  # MLflow remembers by name what it has migrated
        shutil.rmtree(self.folder / ARTIFACTS, ignore_errors=True)  # of a database that was deleted
        client = client_type(_uri(fresh))
        experiment = client.create_experiment(EXPERIMENT, artifact_location=f"mlflow-artifacts:/{EXPERIMENT}")
        client.set_experiment_tag(experiment, "mlflow.note.content", EXPERIMENT_NOTE)
        client.set_experiment_tag(experiment, "mlflow.experimentKind", "custom_model_development")  # else the page asks for it
        client.delete_experiment("0")  # MLflow's own "Default", empty for ever
        fresh.replace(self.database)

    def runs(self) -> list[Any]:
        """All MLflow runs of the experiment that were not deleted."""
        page = self.client.search_runs([self.experiment], max_results=1000)
        found = list(page)
        while page.token:
            page = self.client.search_runs([self.experiment], max_results=1000, page_token=page.token)
            found += page
        return found

    def create(self, tags: Mapping[str, str], start_ms: int) -> str:
        """A new run; returns its id."""
        run = self.client.create_run(self.experiment, start_time=start_ms, tags=dict(tags), run_name=tags["mlflow.runName"])
        return str(run.info.run_id)

    def log(self, run_id: str, params: Mapping[str, str], metrics: Mapping[str, float], when_ms: int) -> None:
        """Parameters and metrics of a run, in as few transactions as MLflow allows."""
        from mlflow.entities import Metric, Param

        pairs = [Param(key, value) for key, value in params.items()]
        points = [Metric(key, value, when_ms, 0) for key, value in metrics.items()]
        for start in range(0, max(len(pairs), len(points)), BATCH):
            self.client.log_batch(run_id, points[start : start + BATCH], pairs[start : start + BATCH])

    def finish(self, run_id: str, end_ms: int) -> None:
        """Mark a run as finished: the last write of a run, without which the next sync writes it again."""
        self.client.set_terminated(run_id, end_time=end_ms)

    def retag(self, run: Any, tags: Mapping[str, str]) -> bool:
        """Set those tags that differ; True if there were any."""
        changed = {key: value for key, value in tags.items() if run.data.tags.get(key) != value}
        for key, value in changed.items():
            self.client.set_tag(run.info.run_id, key, value)
        return bool(changed)

    def delete(self, run_id: str) -> None:
        """Delete a run and its artifacts. MLflow keeps the row, hidden, until ``mlflow gc``."""
        shutil.rmtree(self.artifacts(run_id).parent, ignore_errors=True)
        self.client.delete_run(run_id)

    def flush(self) -> None:
        """Have the database on the disk."""
        with open(self.database, "rb") as handle:
            os.fsync(handle.fileno())

    def artifacts(self, run_id: str) -> Path:
        """The folder that ``mlflow-artifacts:/expertmiss/<run>/artifacts`` means."""
        return self.folder / ARTIFACTS / EXPERIMENT / run_id / "artifacts"


def is_busy(problem: Exception) -> bool:
    """Whether SQLite, or MLflow for it, says that another process holds the database."""
    return "is locked" in str(problem)


def busy(database: Path) -> UserError:
    """What to tell when :func:`is_busy`."""
    return UserError(f"{database}: in use by another program; wait until it is done (or stop `expertmiss ui`) and run again")


def _check(database: Path) -> None:
    # MLflow itself would try to open a damaged file for two minutes.
    with closing(sqlite3.connect(database, timeout=BUSY_SECONDS)) as connection:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        connection.execute("SELECT version_num FROM alembic_version")
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict.replace("\n", " "))


def _do_not_wait_for_the_disk(connection: Any, record: Any) -> None:
    # 500 commits wait up to 20 s on a busy disk. A killed process loses nothing by this; after a power failure the store may need a rebuild.
    connection.execute("PRAGMA synchronous=OFF")


def _uri(database: Path) -> str:
    return f"sqlite:///{database}"
