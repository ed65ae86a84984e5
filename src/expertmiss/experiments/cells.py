"""The emulator's tables as arrays: documents down, policies across; and the measures that every experiment shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from expertmiss.errors import UserError
from expertmiss.stats.bootstrap import ClusterBootstrap, Interval, ratio, ratio_difference
from expertmiss.stats.measures import MEASURES, METERS
from expertmiss.stats.tables import Table, read_table

Array = NDArray[np.float64]
ABOUT = [
    "model", "corpus", "split", "study", "policy", "arm", "family", "miss_rule", "eviction", "admission", "beta", "delay", "tau", "residency",
    "capacity", "few_residents",
]  # fmt: skip
EXTRA = ("heaviest", "reswaps")  # meters that the shared measures do not use
LOSS = "perplexity_change"
SHOWN = ("hit_rate", "fetched_share", "substituted_share", "mean_mass", "mass_per_substitution", "agreement", "kl", "loads")
GAP = ("hit_rate", "substituted_share", "mean_mass")


@dataclass(frozen=True)
class Cells:
    """Documents [N] and policies [P] of one experiment; seeds of a policy are averaged.

    Attributes:
        documents: columns document, domain, source.
        policies: columns ``ABOUT`` and ``seeds``.
        nll: [N, P] sum of NLL over the scored targets, nats.
        scored: [N] scored targets.
        meters: [N, P] by name, summed over layers and tokens.
        reference: [P] index of the lossless policy at the same capacity.
        labels: labels of the file.
    """

    documents: pd.DataFrame
    policies: pd.DataFrame
    nll: Array
    scored: Array
    meters: Mapping[str, Array]
    reference: NDArray[np.int64]
    table: Table

    def index(self, **wanted: Any) -> int:
        """The one policy whose columns equal ``wanted``.

        Raises:
            UserError: none, or several.
        """
        chosen = np.full(len(self.policies), True)
        for column, value in wanted.items():
            chosen &= (self.policies[column] == value).to_numpy()
        found = np.flatnonzero(chosen)
        if len(found) != 1:
            raise UserError(f"emulated cells: {len(found)} policies with {wanted}, one is needed; run emulate_policies again")
        return int(found[0])

    def change(self) -> Array:
        """[N, P] NLL of a policy minus its reference's, nats."""
        return self.nll - self.nll[:, self.reference]


def load_cells(path: Path) -> Cells:
    """Read ``cells.parquet`` or ``open_loop.parquet`` of emulate_policies (the latter has no NLL: zeros).

    Raises:
        UserError: columns or documents are missing, a capacity has no reference.
    """
    table = read_table(path, [*ABOUT, "seed", "document", "domain", "source", *METERS, *EXTRA])
    frame = table.frame.fillna({"beta": -1.0, "delay": -1.0, "tau": -1.0})  # groups may not hold NaN
    documents = frame[["document", "domain", "source"]].drop_duplicates().sort_values("document", ignore_index=True)
    order = frame.groupby(ABOUT, observed=True, sort=False).ngroup()
    policies = frame.assign(place=order).groupby("place").agg({**dict.fromkeys(ABOUT, "first"), "seed": "nunique"})
    policies = (
        policies.rename(columns={"seed": "seeds"})
        .reset_index(drop=True)
        .replace({"beta": {-1.0: np.nan}, "delay": {-1.0: np.nan}, "tau": {-1.0: np.nan}})
    )
    place = pd.Index(documents["document"]).get_indexer(frame["document"])
    count = np.zeros((len(documents), len(policies)))
    np.add.at(count, (place, order.to_numpy()), 1.0)
    if (count != policies["seeds"].to_numpy()).any():
        raise UserError(f"{path}: a policy lacks documents or holds one twice; run emulate_policies again")

    def arrange(column: str) -> Array:
        values = np.zeros(count.shape)
        np.add.at(values, (place, order.to_numpy()), frame[column].to_numpy(np.float64))
        return values / count

    closed = "nll" in frame
    scored = arrange("scored")[:, 0] if closed else np.ones(len(documents))
    lossless = {int(row["capacity"]): index for index, row in policies.iterrows() if row["arm"] == "reference"}
    missing = set(policies["capacity"]) - set(lossless)
    if missing:
        raise UserError(f"{path}: no reference at C = {min(missing)}; run emulate_policies again")
    return Cells(
        documents, policies, arrange("nll") if closed else np.zeros(count.shape), scored,
        {name: arrange(name) for name in (*METERS, *EXTRA)}, policies["capacity"].map(lossless).to_numpy(np.int64), table,
    )  # fmt: skip


def perplexity_change(totals: Array) -> Array:
    """exp(mean NLL difference) - 1 from totals of the NLL difference (column 0) and of scored targets (column 1)."""
    change: Array = np.expm1(totals[:, 0] / totals[:, 1])
    return change


def loss_columns(cells: Cells) -> Array:
    """[N, 2, P] NLL difference and scored targets."""
    change = cells.change()
    return np.stack([change, np.broadcast_to(cells.scored[:, None], change.shape)], axis=1)


def measure_rows(cells: Cells, bootstrap: ClusterBootstrap) -> pd.DataFrame:
    """Every policy's loss and routing measures in long form: ``measure``, ``unit``, ``estimate``, ``low``, ``high``, ``reliable`` ..."""
    frames = [rows(cells.policies, LOSS, "share", bootstrap.interval(perplexity_change, loss_columns(cells)), bootstrap.confidence)]
    for name in SHOWN:
        measure = MEASURES[name]
        frames.append(
            rows(cells.policies, name, measure.unit, bootstrap.interval(ratio, measure.columns(cells.meters)), bootstrap.confidence)
        )
    return pd.concat(frames, ignore_index=True).assign(documents=len(cells.documents))


def rows(about: pd.DataFrame, measure: str, unit: str, interval: Interval, confidence: float) -> pd.DataFrame:
    """``about`` with an interval's columns."""
    return about.reset_index(drop=True).assign(
        measure=measure, unit=unit, estimate=interval.estimate, low=interval.low, high=interval.high, confidence=confidence,
        clusters=interval.clusters, reliable=interval.reliable,
    )  # fmt: skip


def loop_gap(closed: Cells, opened: Cells, bootstrap: ClusterBootstrap) -> pd.DataFrame:
    """Closed loop minus open loop of every policy, on the same documents: what a replay of a lossless trace does not see.

    Raises:
        UserError: the two tables hold other policies or documents.
    """
    if not closed.policies[["policy", "capacity"]].equals(opened.policies[["policy", "capacity"]]) or not closed.documents.equals(
        opened.documents
    ):
        raise UserError("open_loop.parquet and cells.parquet hold different policies or documents; run emulate_policies again")
    frames = []
    for name in GAP:
        measure = MEASURES[name]
        columns = [measure.columns(cells.meters) for cells in (closed, opened)]
        interval = bootstrap.interval(ratio_difference, np.concatenate(columns, axis=1))
        totals = [column.sum(axis=0) for column in columns]
        frame = rows(closed.policies, name, measure.unit, interval, bootstrap.confidence)
        frames.append(frame.assign(closed=totals[0][0] / totals[0][1], opened=totals[1][0] / totals[1][1]))
    return pd.concat(frames, ignore_index=True).assign(documents=len(closed.documents))


def order_reversals(statistic: Any, columns: Array, orders: int, fraction: float, seed: int) -> dict[str, float]:
    """How often a sample of the first ``fraction`` of the documents, in random order, has the other sign (claim C8).

    Args:
        statistic: totals [X, columns, ...] to values [X].
        columns: [N, columns, ...], one row a document.

    Returns:
        ``estimate`` (share of ``orders`` with another sign), ``full`` (the statistic of all documents), ``first`` (documents in the small sample).
    """
    first = max(1, round(fraction * len(columns)))
    draw = np.random.default_rng(seed)
    totals = np.stack([columns[draw.permutation(len(columns))[:first]].sum(axis=0) for _ in range(orders)])
    with np.errstate(divide="ignore", invalid="ignore"):
        full = float(np.squeeze(statistic(columns.sum(axis=0)[None])))
        small = np.ravel(statistic(totals))
    small = small[~np.isnan(small)]  # a sample in which the statistic is undefined has no sign
    return {
        "estimate": float((np.sign(small) != np.sign(full)).mean()) if len(small) else float("nan"),
        "full": full,
        "first": float(first),
    }
