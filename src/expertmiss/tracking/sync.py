"""Stage mlflow_sync: mirror every ``results/**/run.json`` into a local MLflow store.

In: the run.json files below ``results`` and of the reports on them, and the artifacts that they list. Out: ``mlflow.db``, ``artifacts/``, ``synced.json``, ``run.json``.
Steps: 1. read and check all runs; 2. stop if nothing changed since the last sync; 3. open the store, remove runs that a killed sync left
unfinished; 4. write what is missing under one parent per experiment; 5. tag what ``results`` no longer holds.

The one process that writes MLflow: four parallel writers on a fresh store all failed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expertmiss.errors import UserError
from expertmiss.files import read_json, sha256_file, sha256_json, write_json
from expertmiss.provenance import Labels, write_run
from expertmiss.tracking import describe
from expertmiss.tracking.runs import Run, read_runs

if TYPE_CHECKING:
    from expertmiss.stages import Context
    from expertmiss.tracking.store import Store

STAMP = "synced.json"
OLD = " (superseded)"
FINISHED = "FINISHED"


def run(cfg: Mapping[str, Any], *, out: Path, context: Context, results: Path) -> None:
    """Sync ``results`` into the store in folder ``out`` and say what was done.

    Args:
        cfg: ``descriptions``, if present: experiment -> what it asks, for the note at the top of its run.
        out: folder of the store, normally ``results/mlflow``.
        context: experiment and source hash, for the stage's own run.json.
        results: folder with the run.json files.

    Raises:
        UserError: see :func:`sync`.
    """
    started, begin = datetime.now(UTC), time.monotonic()
    counts = sync(results, out, cfg.get("descriptions", {}))
    print(f"{out}: {describe.summary(counts)}")
    labels = Labels("none", "none", "none", "none", "exploratory", {"runs": sum(counts[word] for word in ("written", "unchanged"))})
    write_run(
        out, stage="mlflow_sync", experiment=context.experiment, name="mirror of the results", config=cfg, source_hash=context.source_hash,
        inputs=(), outputs=(), metrics=counts, timings={"sync": time.monotonic() - begin}, labels=labels, started=started,
    )  # fmt: skip


def sync(results: Path, store: Path, descriptions: Mapping[str, str]) -> dict[str, int]:
    """Make the store say what ``results`` says; returns counts of runs: written, unchanged, superseded (newly), repaired.

    Syncs of one store exclude each other. A killed sync is completed by the next one.

    Raises:
        UserError: a run.json is broken, an artifact is missing or differs from its run.json, the store cannot be opened or is in use.
    """
    from expertmiss.tracking import store as backend

    results, store = results.absolute(), store.absolute()
    with backend.locked(store):
        runs = read_runs(results, skip=store)
        wanted = sha256_json([[(item.folder, describe.digest(item)) for item in runs], dict(descriptions)])
        if _stamp(store, wanted) == _read_stamp(store):
            return {"written": 0, "unchanged": len(runs), "superseded": 0, "repaired": 0}
        opened = backend.Store(store, create=True)
        from mlflow.exceptions import MlflowException  # after Store, which first tells mlflow to be quiet

        try:
            counts = _Sync(opened, results.parent, runs, descriptions).run()
        except MlflowException as problem:
            raise (backend.busy(opened.database) if backend.is_busy(problem) else problem) from problem.__cause__
        write_json(store / STAMP, _stamp(store, wanted))
        return counts


def _stamp(store: Path, wanted: str) -> dict[str, Any]:
    """What was mirrored, and the database that it was mirrored to; a database edited since is looked at again."""
    database = store / "mlflow.db"
    status = database.stat() if database.exists() else None
    return {"results": wanted, "database": [status.st_size, status.st_mtime_ns] if status else None}


def _read_stamp(store: Path) -> Any:
    return read_json(store / STAMP) if (store / STAMP).exists() else None


class _Sync:
    """One sync of checked runs into an open store."""

    def __init__(self, store: Store, root: Path, runs: Sequence[Run], descriptions: Mapping[str, str]) -> None:
        self.store, self.root, self.runs, self.descriptions = store, root, runs, descriptions
        self.counts = {"written": 0, "unchanged": 0, "superseded": 0, "repaired": 0}

    def run(self) -> dict[str, int]:
        """Steps 3 to 5 of the module; returns the counts."""
        present, stale = self._compare()
        missing = [item for item in self.runs if item.identity not in present]
        self._check_artifacts(missing)
        for found in stale:
            self.store.delete(found.info.run_id)
            self.counts["repaired"] += found.info.status != FINISHED
        self.counts["unchanged"] = len(self.runs) - len(missing)
        for experiment in sorted({item.data["experiment"] for item in self.runs}):
            mine = [item for item in self.runs if item.data["experiment"] == experiment]
            parent = self._parent(experiment, mine, present)
            for item in mine:
                if item.identity in present:
                    self.store.retag(present[item.identity], {describe.PARENT: parent})
                else:
                    self._write(item, parent)
        self._supersede(present)
        self.store.flush()
        return self.counts

    def _compare(self) -> tuple[dict[tuple[str, str], Any], list[Any]]:
        """Mirrored runs by identity; and those to delete: unfinished, doubles, and those whose run.json was written anew."""
        digests = {item.identity: describe.digest(item) for item in self.runs}
        present: dict[tuple[str, str], Any] = {}
        stale: list[Any] = []
        for found in self.store.runs():
            tags = found.data.tags
            if "folder" not in tags:  # somebody's own run
                continue
            identity = (tags["folder"], tags.get("run_key", ""))
            outdated = identity in digests and tags.get("digest") != digests[identity]
            if found.info.status != FINISHED or identity in present or outdated:
                stale.append(found)
            else:
                present[identity] = found
        return present, stale

    def _check_artifacts(self, missing: Sequence[Run]) -> None:
        """Before anything is written: every artifact is there and is the one that its run.json speaks of."""
        for item in missing:
            for path in item.data["artifacts"]:
                if not (self.root / path).is_file():
                    raise UserError(f"{item.path}: artifact {path} is missing; run stage {item.data['stage']} again")
                if sha256_file(self.root / path) != item.data["outputs"][path]:
                    raise UserError(f"{item.path}: artifact {path} was changed after it; run stage {item.data['stage']} again")

    def _parent(self, experiment: str, runs: Sequence[Run], present: Mapping[tuple[str, str], Any]) -> str:
        """Id of the experiment's run, with its tags brought up to date."""
        tags = describe.parent_tags(experiment, runs, self.descriptions.get(experiment, ""))
        found = present.get((tags["folder"], tags["run_key"]))
        if found is None:
            run_id = self.store.create(tags, min(item.start_ms for item in runs))
            self.store.finish(run_id, max(item.end_ms for item in runs))
            return run_id
        self._revive(found)
        if self.store.retag(found, tags):
            self.store.finish(found.info.run_id, max(item.end_ms for item in runs))
        return str(found.info.run_id)

    def _write(self, item: Run, parent: str) -> None:
        from mlflow.exceptions import MlflowException

        from expertmiss.tracking import store as backend

        try:
            run_id = self.store.create({**describe.tags(item, parent), "digest": describe.digest(item)}, item.start_ms)
            self.store.log(run_id, describe.params(item), describe.metrics(item), item.end_ms)
            folder = self.store.artifacts(run_id)
            for path, name in {**describe.artifact_names(item), str(item.path): "run.json"}.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.root / path, folder / name)
            self.store.finish(run_id, item.end_ms)
        except MlflowException as problem:
            if backend.is_busy(problem):
                raise
            raise UserError(
                f"{item.path}: MLflow refuses it ({str(problem).splitlines()[0]}); correct the stage {item.data['stage']}"
            ) from problem
        except OSError as problem:
            raise UserError(
                f"{self.store.folder}: cannot be written ({problem.strerror or problem}); free space and sync again"
            ) from problem
        self.counts["written"] += 1

    def _supersede(self, present: Mapping[tuple[str, str], Any]) -> None:
        current = {item.identity for item in self.runs}
        experiments = {describe.parent_folder(item.data["experiment"]) for item in self.runs}
        for identity, found in present.items():
            if identity in current or identity[0] in experiments:
                self._revive(found)
            elif "superseded" not in found.data.tags:
                # The name first: a kill between the two leaves a run that is still renamed next time, to the same name.
                self.store.client.update_run(found.info.run_id, name=found.info.run_name.removesuffix(OLD) + OLD)
                self.store.client.set_tag(found.info.run_id, "superseded", "true")
                self.counts["superseded"] += 1

    def _revive(self, found: Any) -> None:
        """A result that came back, e.g. an option set and reset, is current again."""
        if "superseded" in found.data.tags or found.info.run_name.endswith(OLD):
            self.store.client.update_run(found.info.run_id, name=found.info.run_name.removesuffix(OLD))
            self.store.client.delete_tag(found.info.run_id, "superseded")
