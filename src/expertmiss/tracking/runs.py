"""Read and check the ``run.json`` files that the stages wrote. Nothing here knows MLflow."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from expertmiss.errors import UserError
from expertmiss.files import read_json
from expertmiss.provenance import SCHEMA, Labels

TEXTS = ("stage", "experiment", "name", "run_key", "source_hash", "started", "finished")
NUMBERS = ("metrics", "timings")
MAPPINGS = ("config", "inputs", "outputs", "environment", *NUMBERS)


@dataclass(frozen=True)
class Run:
    """One checked ``run.json``.

    Attributes:
        path: the file.
        folder: where it lies in the repository, e.g. ``results/default/simulate_policies/builtin/prose``. A folder holds one
            current run; its earlier ones, with another ``run_key``, are superseded.
        data: the content.
        labels: the checked labels.
    """

    path: Path
    folder: str
    data: dict[str, Any]
    labels: Labels

    @property
    def identity(self) -> tuple[str, str]:
        """Folder and run key; two corpora with one text may share a key, never a folder."""
        return self.folder, self.data["run_key"]

    @property
    def start_ms(self) -> int:
        """Start in milliseconds since 1970, MLflow's unit."""
        return milliseconds(self.data["started"])

    @property
    def end_ms(self) -> int:
        """End in milliseconds since 1970."""
        return milliseconds(self.data["finished"])


def milliseconds(text: str) -> int:
    """ISO 8601 time as milliseconds since 1970."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def read_runs(results: Path, skip: Path) -> list[Run]:
    """All runs below ``results``, and the runs of the reports on them, ``reports/<experiment>/run.json`` beside ``results``, in the
    order of their folders. ``skip`` (the store's own folder) is left out, and so is a report without its pages: those of the
    committed ones stand for results that were made elsewhere.

    Raises:
        UserError: a file is not JSON, or a field of it is missing or wrong; the line names both.
    """
    found: list[Run] = []
    for folder, below, files in os.walk(results):
        below[:] = sorted(name for name in below if not name.startswith(".") and Path(folder, name) != skip)
        if "run.json" in files and Path(folder) != results:
            found.append(_checked(Path(folder, "run.json"), results.parent))
    for experiment in sorted({run.data["experiment"] for run in found}):
        path = results.parent / "reports" / experiment / "run.json"
        if path.is_file():
            report = _checked(path, results.parent)
            found += [report] if all((results.parent / item).is_file() for item in report.data["artifacts"]) else []
    return sorted(found, key=lambda run: run.folder)


def _checked(path: Path, root: Path) -> Run:
    data = read_json(path)
    if not isinstance(data, dict):
        raise _broken(path, "its top level is not a mapping")
    if data.get("schema") != SCHEMA:
        raise _broken(path, f"schema is {data.get('schema')!r}, this version reads {SCHEMA}")
    for key in TEXTS:
        if not isinstance(data.get(key), str) or not data[key].strip():
            raise _broken(path, f"{key} is {data.get(key)!r}, expected text")
    for key in MAPPINGS:
        if not isinstance(data.get(key), dict):
            raise _broken(path, f"{key} is {data.get(key)!r}, expected a mapping")
    for group in NUMBERS:
        for key, value in data[group].items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
                raise _broken(path, f"{group}.{key} is {value!r}, expected a finite number")
    for key in ("started", "finished"):
        try:
            milliseconds(data[key])
        except ValueError:
            raise _broken(path, f"{key} is {data[key]!r}, expected an ISO 8601 time") from None
    if re.search("[@=\n]", data["name"]):
        raise _broken(path, f"name {data['name']!r} holds '@', '=' or a line break")
    artifacts = data.get("artifacts")
    if not isinstance(artifacts, list) or not all(isinstance(item, str) for item in artifacts):
        raise _broken(path, f"artifacts is {artifacts!r}, expected a list of paths")
    for item in artifacts:
        if PurePosixPath(item).is_absolute() or ".." in PurePosixPath(item).parts or item not in data["outputs"]:
            raise _broken(path, f"artifact {item!r} is not one of the run's outputs in the repository")
    try:
        labels = Labels.of(data.get("labels"))  # type: ignore[arg-type]  # anything else than a mapping is refused there
    except UserError as problem:
        raise _broken(path, str(problem)) from None
    return Run(path, path.parent.relative_to(root).as_posix(), data, labels)


def _broken(path: Path, what: str) -> UserError:
    return UserError(f"{path}: {what}; delete the file and run its stage again")


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, keys joined by dots; lists and empty mappings stay values."""
    flat: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            flat |= flatten(item, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = item
    return flat
