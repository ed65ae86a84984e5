"""Stage summarize_policies: measures of every policy and capacity, with intervals.

Input:  cells.parquet of simulate_policies, one row per policy, capacity, seed and document.
Output: summary.parquet (+ .csv), one row per policy, capacity and measure; differences.parquet (+ .csv), the same against the
        reference policy at the same capacity, on the same documents.
Steps:  sum meters over seeds; arrange documents x cells; bootstrap sources once; every measure is a ratio of sums.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from expertmiss.errors import UserError, suggest
from expertmiss.files import sha256_file
from expertmiss.progress import Progress
from expertmiss.provenance import write_run
from expertmiss.stages import Context
from expertmiss.stats.bootstrap import ClusterBootstrap, Interval, ratio, ratio_difference
from expertmiss.stats.measures import MEASURES, METERS
from expertmiss.stats.tables import read_table, with_sample, write_table

STAGE = "summarize_policies"
ABOUT = ["policy", "miss_rule", "eviction", "admission", "capacity", "residency"]
REQUIRED = ["model", "corpus", "split", *ABOUT, "seed", "document", "domain", "source", "tokens", *METERS]
OPEN_LOOP = "open loop: policies replay a fetch_all trace"


def run(cfg: dict[str, Any], *, cells: Path, out: Path, context: Context) -> None:
    """Write the tables and ``run.json`` into ``out``.

    Args:
        cfg: ``stats``: ``resamples``, ``confidence``, ``seed``, ``min_clusters``; ``reference`` (``fetch_all`` when left out).

    Raises:
        UserError: cells are incomplete, stand there twice, mix models or corpora, or lack the reference policy; 'fetch_all' is another rule.
    """
    started, begun = datetime.now(UTC), time.monotonic()
    options = dict(cfg["stats"])
    reference = options.pop("reference", "fetch_all")
    table = read_table(cells, REQUIRED)
    frame = table.frame
    for column in ("model", "corpus", "split"):
        if frame[column].nunique() != 1:
            raise UserError(f"{cells}: column '{column}' holds {frame[column].nunique()} values; summarise one {column} at a time")
    if reference not in set(frame["policy"]):
        raise UserError(f"stats.reference: no policy '{reference}' in {cells}; {suggest(reference, frame['policy'].astype(str).unique())}")
    rules = sorted(set(frame.loc[frame["policy"] == reference, "miss_rule"]))
    if reference == "fetch_all" and rules != ["fetch_all"]:
        raise UserError(
            f"{cells}: policy 'fetch_all', the lossless reference, has miss rule {', '.join(rules)}; give that policy another name, "
            "or stats.reference another policy"
        )

    documents, about, meters = arrange(frame, cells)
    bootstrap = ClusterBootstrap(documents["source"].to_numpy(), **options)
    summary, differences = summarize(about, meters, bootstrap, reference, context.journal)

    first = frame.drop_duplicates("document")
    sample = {"documents": len(documents), "sources": bootstrap.clusters, "tokens": int(first["tokens"].sum())}
    substitutes = bool((frame["miss_rule"] != "fetch_all").any()) and not any("open loop" in note for note in table.labels.notes)
    labels = with_sample(table.labels, sample, OPEN_LOOP if substitutes else "")
    identity = {column: str(frame[column].iloc[0]) for column in ("model", "corpus", "split")}
    sources = {cells.name: sha256_file(cells)}
    outputs = []
    for name, rows in (("summary", summary), ("differences", differences)):
        outputs += write_table(out / f"{name}.parquet", rows.assign(**identity, documents=len(documents)), labels, sources)
    shown = summary[summary["measure"].isin(["hit_rate", "substituted_share", "mean_mass"])]
    write_run(
        out, stage=STAGE, experiment=context.experiment, name=f"statistics of {identity['model']} on {identity['corpus']}", config=cfg,
        source_hash=context.source_hash, inputs=[cells], outputs=outputs, artifacts=[path for path in outputs if path.suffix == ".csv"],
        metrics={f"{row['measure']}/{row['policy']}/C{row['capacity']}": row["estimate"] for row in shown.to_dict("records")},
        timings={"total": time.monotonic() - begun}, labels=labels, started=started,
    )  # fmt: skip


def arrange(frame: pd.DataFrame, path: Path) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    """Documents [D] (document, source, domain), cells [P] (``ABOUT`` and number of seeds) and every meter as [D, P], summed over seeds.

    Raises:
        UserError: a row or a capacity stands there twice, a cell lacks documents (paired differences would compare different samples), or a document has two sources.
    """
    shares = frame.groupby("capacity", observed=True)["residency"].unique()
    for capacity, found in shares[shares.map(len) > 1].items():
        raise UserError(
            f"{path}: residency {', '.join(f'{share:g}' for share in sorted(found))} are the same {capacity} resident experts; "
            "keep one of them in simulate.residency and run simulate_policies again"
        )
    twice = frame.duplicated(["policy", "capacity", "seed", "document"])
    if twice.any():
        row = frame[twice].iloc[0]
        raise UserError(
            f"{path}: policy '{row['policy']}' at capacity {row['capacity']}, seed {row['seed']}, document {row['document']} stands there "
            "twice; name every policy, residency and seed once and run simulate_policies again"
        )
    documents = frame[["document", "source", "domain"]].drop_duplicates().sort_values("document", ignore_index=True)
    if documents["document"].duplicated().any():
        name = documents.loc[documents["document"].duplicated(), "document"].iloc[0]
        raise UserError(f"{path}: document {name} has two sources or domains; run simulate_policies again")
    about = frame.groupby(ABOUT, observed=True)["seed"].nunique().rename("seeds").reset_index()
    if about.duplicated(["policy", "capacity"]).any():
        name = about.loc[about.duplicated(["policy", "capacity"]), "policy"].iloc[0]
        raise UserError(f"{path}: policy '{name}' has two definitions at one capacity; give each policy its own name")
    keys = pd.MultiIndex.from_frame(about[["policy", "capacity"]])
    summed = frame.groupby(["document", "policy", "capacity"], observed=True)[list(METERS)].sum()
    meters: dict[str, Any] = {}
    for meter in METERS:
        wide = summed[meter].unstack(["policy", "capacity"]).reindex(index=documents["document"], columns=keys)
        meters[meter] = wide.to_numpy(dtype=np.float64)
    gaps = np.argwhere(np.isnan(meters["calls"]))
    if len(gaps):
        row, cell = gaps[0]
        policy, capacity = keys[cell]
        raise UserError(
            f"{path}: policy '{policy}' at capacity {capacity} lacks document {documents['document'].iloc[row]}; "
            "run simulate_policies again"
        )
    return documents, about, meters


def summarize(
    about: pd.DataFrame, meters: Mapping[str, Any], bootstrap: ClusterBootstrap, reference: str, journal: Path | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:  # fmt: skip
    """Long tables of every measure: its value by cell, and its difference (policy minus ``reference``) by cell of another policy."""
    cells = list(enumerate(zip(about["policy"], about["capacity"], strict=True)))
    at = {capacity: index for index, (policy, capacity) in cells if policy == reference}
    other = [index for index, (policy, capacity) in cells if policy != reference and capacity in at]
    base = [at[capacity] for index, (_, capacity) in cells if index in set(other)]
    values, differences = [], []
    with Progress(len(MEASURES), "intervals", "measure", journal) as progress:
        for measure in MEASURES.values():
            columns = measure.columns(meters)
            values.append(_rows(about, measure.name, measure.unit, bootstrap.interval(ratio, columns), bootstrap.confidence))
            if other:
                paired = np.concatenate([columns[:, :, other], columns[:, :, base]], axis=1)
                rows = _rows(
                    about.loc[other], measure.name, measure.unit, bootstrap.interval(ratio_difference, paired), bootstrap.confidence
                )
                differences.append(rows.assign(reference=reference))
            progress.update()
    empty = values[0].iloc[:0].assign(reference=reference)
    return pd.concat(values, ignore_index=True), pd.concat(differences, ignore_index=True) if differences else empty


def _rows(about: pd.DataFrame, measure: str, unit: str, interval: Interval, confidence: float) -> pd.DataFrame:
    return about.reset_index(drop=True).assign(
        measure=measure, unit=unit, estimate=interval.estimate, low=interval.low, high=interval.high, confidence=confidence,
        clusters=interval.clusters, reliable=interval.reliable,
    )  # fmt: skip
