"""Statistics tables: Parquet with its labels inside, and the same rows as CSV.

The labels (what the numbers may be called) and the sources travel in the Parquet schema's metadata under ``expertmiss``, so a table
keeps them wherever it is copied. Inputs of the statistics (cells, traces) name theirs in the ``run.json`` beside them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from expertmiss.errors import UserError
from expertmiss.files import atomic_path, read_json, sha256_file
from expertmiss.labelled import KEY, write_labelled
from expertmiss.provenance import Labels, repository_root

QUICK = "quick run"
PREDICTED_TOO = "some times are predicted"


@dataclass(frozen=True)
class Table:
    """Rows, their labels, and the files they were computed from (path to SHA-256)."""

    frame: pd.DataFrame
    labels: Labels
    sources: Mapping[str, str]


def write_table(path: Path, frame: pd.DataFrame, labels: Labels, sources: Mapping[str, str]) -> list[Path]:
    """Write ``path`` (.parquet) and its .csv, atomically; returns both paths."""
    write_labelled(path, frame, labels, sources)
    with atomic_path(path.with_suffix(".csv")) as temporary:
        frame.to_csv(temporary, index=False, lineterminator="\n")
    return [path, path.with_suffix(".csv")]


def read_table(path: Path, columns: Sequence[str] = ()) -> Table:
    """Read a labelled Parquet file that has at least ``columns``.

    Raises:
        UserError: missing, not Parquet, without labels, or without one of ``columns``.
    """
    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run the stage that writes it first") from None
    except (pa.ArrowInvalid, OSError) as problem:
        raise UserError(
            f"{path}: not a readable Parquet file ({str(problem).splitlines()[0]}); run the stage that writes it again"
        ) from None
    missing = sorted(set(columns) - set(table.column_names))
    if missing:
        raise UserError(f"{path}: lacks column {', '.join(missing)}; run the stage that writes it again")
    content = json.loads((table.schema.metadata or {}).get(KEY, b"{}"))
    return Table(table.to_pandas(), labels_of(path, content), content.get("sources", {}))


def labels_of(path: Path, content: Mapping[str, Any] | None = None) -> Labels:
    """Labels from ``content`` (a file's own metadata), else from the ``run.json`` in the file's folder.

    Raises:
        UserError: neither holds valid labels.
    """
    if content and "labels" in content:
        return Labels.of(content["labels"])
    run = path.parent / "run.json"
    labels = read_json(run).get("labels") if run.exists() else None
    if labels is None:
        raise UserError(f"{path}: no labels in it or in {run.name} beside it; run the stage that writes it again")
    return Labels.of(labels)


def written_files(run_file: Path) -> dict[str, str]:
    """SHA-256 of what the stage of ``run_file`` wrote into its folder, by path within that folder."""
    folder = Path(os.path.normpath(Path.cwd() / run_file.parent))
    root = repository_root(folder)
    outputs = read_json(run_file).get("outputs", {})
    return {
        (root / name).relative_to(folder).as_posix(): digest for name, digest in outputs.items() if (root / name).is_relative_to(folder)
    }


def check_unchanged(path: Path, digest: str | None, run_file: Path) -> None:
    """Refuse a file that is not the one ``run_file`` speaks of; ``digest`` is what it records, ``None`` if nothing.

    Raises:
        UserError: ``path`` is missing, was changed, or is not recorded.
    """
    stage = read_json(run_file).get("stage", "its stage")
    if not path.is_file():
        raise UserError(f"{path}: missing, though {stage} wrote it ({run_file.name} records it); run snakemake again")
    if digest is None or sha256_file(path) != digest:
        raise UserError(f"{path}: changed since {stage} wrote it ({run_file.name} disagrees); delete it and run snakemake again")


def with_sample(labels: Labels, n: Mapping[str, int], *notes: str) -> Labels:
    """``labels`` for a sample of ``n`` (documents, sources, tokens), with ``notes`` that it does not carry yet."""
    joined = dict.fromkeys((*labels.notes, *(note for note in notes if note)))
    return replace(labels, n={unit: int(count) for unit, count in n.items()}, notes=tuple(joined))


def joint_labels(tables: Sequence[Table], quick: bool) -> Labels:
    """Labels of what is made from ``tables``: their common words, the smallest sample (of the units all count, else of every unit), all notes, and ``quick run``.

    Tables without times may stand beside others; where measured and predicted times meet, the label is ``measured`` and a note says so.

    Raises:
        UserError: the tables differ in substrate, routing, host or status.
    """
    first = tables[0].labels
    clocks = {table.labels.time for table in tables} - {"none"}
    clock, beside = ("measured", PREDICTED_TOO) if len(clocks) == 2 else (clocks.pop() if clocks else "none", "")
    for table in tables[1:]:
        for name in ("substrate", "routing", "host", "status"):
            if getattr(table.labels, name) != getattr(first, name):
                raise UserError(
                    f"labels.{name}: tables of one artifact differ ({getattr(first, name)}, {getattr(table.labels, name)}); show them apart"
                )
    counted = [set(table.labels.n) for table in tables]
    units = set.intersection(*counted) or set.union(*counted)
    named = {unit: min(table.labels.n[unit] for table in tables if unit in table.labels.n) for table in tables for unit in table.labels.n}
    sample = {unit: count for unit, count in named.items() if unit in units}
    notes = (note for table in tables for note in table.labels.notes)
    return with_sample(replace(first, time=clock), sample, *notes, beside, QUICK if quick else "")


def label_line(labels: Labels) -> str:
    """Sample size and labels as one line of words, parted by `` · ``."""
    sample = ", ".join(f"{count:,} {unit}" for unit, count in labels.n.items())
    routing = {"own": "own routing", "synthetic": "synthetic routing", "none": "no routing"}[labels.routing]
    clock = {"measured": "measured times", "predicted": "predicted times", "none": "no times"}[labels.time]
    return " · ".join([f"n: {sample}", labels.substrate, routing, clock, f"host {labels.host}", labels.status, *labels.notes])
