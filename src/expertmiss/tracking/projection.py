"""What a store says, apart from what differs between two stores of the same results: ids and times of writing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from expertmiss.files import sha256_file


def content(store: Path, superseded: bool = False) -> dict[str, Any]:
    """Content of the store in folder ``store`` (``results/mlflow``), equal for two stores that mirror the same results.

    Args:
        superseded: count the superseded runs too. A rebuilt store has none, since ``results/`` holds only the current ones.

    Returns:
        ``<folder> <run_key>`` -> name, parent (its folder), status, params, metrics, tags, artifacts (path -> SHA-256).

    Raises:
        UserError: there is no store, or it cannot be read.
    """
    from expertmiss.tracking.store import Store

    opened = Store(Path(store))
    runs = opened.runs()
    folders = {run.info.run_id: run.data.tags.get("folder", "") for run in runs}
    found: dict[str, Any] = {}
    for run in runs:
        tags = dict(run.data.tags)
        if "superseded" in tags and not superseded:
            continue
        folder = opened.artifacts(run.info.run_id)
        parent = tags.pop("mlflow.parentRunId", None)
        found[f"{tags.get('folder')} {tags.get('run_key')}"] = {
            "name": run.info.run_name, "parent": folders.get(parent) if parent else None, "status": run.info.status, "params": dict(run.data.params),
            "metrics": dict(run.data.metrics), "tags": tags,
            "artifacts": {path.relative_to(folder).as_posix(): sha256_file(path) for path in sorted(folder.rglob("*")) if path.is_file()},
        }  # fmt: skip
    return dict(sorted(found.items()))
