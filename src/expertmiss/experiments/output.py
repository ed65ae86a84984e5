"""What every analysis of an experiment leaves: labelled tables and ``run.json``."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from expertmiss.errors import UserError
from expertmiss.experiments.cells import Cells
from expertmiss.files import read_json, sha256_file
from expertmiss.provenance import write_run
from expertmiss.stages import Context
from expertmiss.stats.bootstrap import ClusterBootstrap
from expertmiss.stats.tables import with_sample, write_table


def statistic(
    claim: str, name: str, unit: str, interval: Any, bootstrap: ClusterBootstrap, documents: int, place: Any = ()
) -> dict[str, Any]:
    """One row of a statistics table from an interval (``place`` picks one of several values)."""
    return {
        "claim": claim, "statistic": name, "unit": unit, "estimate": float(interval.estimate[place]), "low": float(interval.low[place]),
        "high": float(interval.high[place]), "confidence": bootstrap.confidence, "clusters": interval.clusters, "reliable": interval.reliable,
        "documents": documents,
    }  # fmt: skip


class Clock:
    """When a stage began."""

    def __init__(self) -> None:
        self.started, self.begun = datetime.now(UTC), time.monotonic()


def write_analysis(
    out: Path, stage: str, title: str, cfg: Mapping[str, Any], context: Context, clock: Clock, cells: Cells, bootstrap: ClusterBootstrap,
    tables: Mapping[str, pd.DataFrame], inputs: Sequence[Path], lock: str, residency: float, unit: str = "sources",
    also: Mapping[str, int] | None = None,
) -> None:  # fmt: skip
    """Write ``tables`` with the labels of ``cells``, and ``run.json`` with their statistics as metrics; the claims' lock travels along.

    ``residency`` is the share that the claims are judged at; ``also`` are further counts of the sample.

    Raises:
        UserError: the cells were emulated under another lock.
    """
    run_file = next(path.parent / "run.json" for path in inputs if path.name == "cells.parquet")
    made = read_json(run_file).get("config", {}).get("claims_lock", "none") if run_file.exists() else "none"
    if made != lock:
        raise UserError(
            f"{run_file}: emulated under other claims than those locked now ({made[:12]}, {lock[:12]}); run emulate_policies again"
        )
    tokens = int(cells.scored.sum())
    flagged = bool(cells.policies["few_residents"][cells.policies["residency"] == residency].any())
    tables = {name: frame.assign(few_residents=flagged) if name.endswith("_statistics") else frame for name, frame in tables.items()}
    labels = with_sample(
        cells.table.labels, {"documents": len(cells.documents), unit: bootstrap.clusters, "tokens": tokens, **(also or {})}
    )
    sources = {path.name: sha256_file(path) for path in inputs}
    identity = {name: str(cells.policies[name].iloc[0]) for name in ("model", "corpus", "split")}
    outputs: list[Path] = []
    for name, frame in tables.items():
        kept = frame.drop(columns=[column for column in identity if column in frame])
        about = labels
        if name.endswith("_gap"):
            about = replace(labels, notes=(*labels.notes, "open loop"))
        elif name.endswith("_prediction"):
            about = replace(labels, time="predicted", notes=(*labels.notes, "predicted open loop, beside measured times"))
        outputs += write_table(out / f"{name}.parquet", kept.assign(**identity), about, sources)
    metrics = {
        re.sub(r"[^\w.\- /]", "", f"{row['claim']}/{row['statistic']}"): row["estimate"]
        for name, frame in tables.items() if name.endswith("_statistics") for row in frame.to_dict("records")
        if row["estimate"] == row["estimate"]
    }  # fmt: skip
    write_run(
        out, stage=stage, experiment=context.experiment, name=title, config={**cfg, "claims_lock": lock}, source_hash=context.source_hash,
        inputs=inputs, outputs=outputs, artifacts=[path for path in outputs if path.suffix == ".csv"], metrics=metrics,
        timings={"total": time.monotonic() - clock.begun}, labels=labels, started=clock.started,
    )  # fmt: skip
