"""Stage analyze_e1: which substitutions cost quality (claim C1).

Inputs:  cells, open_loop and split of emulate_policies e1; config/claims.yaml.
Outputs: e1_measures (loss and routing of every row), e1_split (loss by rank and by weight of what was substituted), e1_choosers (against
         router_rank), e1_gap (closed minus open loop), e1_statistics (what C1's rule needs), e1_orders (C8).
Steps:   bootstrap sources once; every number is a function of totals over documents.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from expertmiss.experiments.cells import (
    ABOUT,
    Array,
    Cells,
    load_cells,
    loop_gap,
    loss_columns,
    measure_rows,
    order_reversals,
    perplexity_change,
    rows,
)  # fmt: skip
from expertmiss.experiments.lock import verify
from expertmiss.experiments.output import Clock, statistic, write_analysis
from expertmiss.experiments.plans import load_claims, tau_name
from expertmiss.paths import project_root
from expertmiss.stages import Context
from expertmiss.stats.bootstrap import ClusterBootstrap, ratio
from expertmiss.stats.tables import read_table

STAGE = "analyze_e1"


def run(cfg: dict[str, Any], *, out: Path, context: Context, cells: Path, open_loop: Path, split: Path, claims: Path) -> None:
    """Write the tables and ``run.json`` into ``out``; ``cfg``: ``stats``.

    Raises:
        UserError: a table is missing, incomplete or of other policies.
    """
    clock = Clock()
    lock = verify(project_root(), "claims", claims)
    closed, opened, rules = load_cells(cells), load_cells(open_loop), load_claims(claims)["claims"]
    bootstrap = ClusterBootstrap(closed.documents["source"].to_numpy(), **cfg["stats"])
    shares, orders = _claim_1(closed, bootstrap, rules)
    tables = {
        "e1_measures": measure_rows(closed, bootstrap), "e1_split": _split(read_table(split).frame, closed, bootstrap),
        "e1_choosers": _choosers(closed, bootstrap), "e1_gap": loop_gap(closed, opened, bootstrap), "e1_statistics": shares, "e1_orders": orders,
    }  # fmt: skip
    write_analysis(
        out,
        STAGE,
        "E1: which substitutions cost quality",
        cfg,
        context,
        clock,
        closed,
        bootstrap,
        tables,
        [cells, open_loop, split],
        lock,
        rules["C1"]["residency"],
    )


def spared(totals: Array) -> Array:
    """Shares spared by the 0.15 rule against substitute_all: of the loss, of the substituted calls, and their difference.

    ``totals``: [X, 5]: NLL difference of the rule and of substitute_all, scored targets, substituted calls of both. Returns [X, 3].
    """
    loss = 1 - np.expm1(totals[:, 0] / totals[:, 2]) / np.expm1(totals[:, 1] / totals[:, 2])
    calls = 1 - totals[:, 3] / totals[:, 4]
    return np.stack([loss, calls, loss - calls], axis=1)


def _claim_1(cells: Cells, bootstrap: ClusterBootstrap, rules: dict[str, Any]) -> tuple[pd.DataFrame, pd.DataFrame]:
    share = rules["C1"]["residency"]
    rule = cells.index(policy=tau_name(0.15), residency=share)
    everything = cells.index(policy="substitute_all", residency=share)
    change, substituted = cells.change(), cells.meters["substituted"]
    columns = np.stack([change[:, rule], change[:, everything], cells.scored, substituted[:, rule], substituted[:, everything]], axis=1)
    count = len(cells.documents)
    losses = bootstrap.interval(perplexity_change, loss_columns(cells)[:, :, [rule, everything]])
    parts = bootstrap.interval(spared, columns)
    found = [
        statistic("C1", name, "share", interval, bootstrap, count, place)
        for name, interval, place in (
            ("loss of the 0.15 rule", losses, 0), ("loss of substitute_all", losses, 1), ("loss spared", parts, 0), ("calls spared", parts, 1),
            ("loss spared minus calls spared", parts, 2),
        )
    ]  # fmt: skip
    order = order_reversals(lambda totals: spared(totals)[:, 2], columns, rules["C8"]["orders"], rules["C8"]["fraction"], 8)
    return pd.DataFrame(found), pd.DataFrame([{"claim": "C1", "statistic": "loss spared minus calls spared", **order, "documents": count}])


def _split(frame: pd.DataFrame, cells: Cells, bootstrap: ClusterBootstrap) -> pd.DataFrame:
    """Shares of substituted calls, mass and loss by rank (``by`` = rank) and by weight bin (``by`` = weight), for every row of the grid."""
    places = pd.Index(cells.documents["document"])
    frame = frame[frame["arm"] == "grid"].assign(place=lambda table: places.get_indexer(table["document"]))
    found = []
    for by, key in (("rank", "rank"), ("weight", "weight_from")):
        # The loss that came through the context has no rank and no weight: group -1.
        keyed = frame.assign(group=frame[key].fillna(-1.0).astype(float))
        groups = np.sort(keyed["group"].unique())
        for (policy, residency), part in keyed.groupby(["policy", "residency"], sort=False):
            about = cells.policies[(cells.policies["policy"] == policy) & (cells.policies["residency"] == residency)].iloc[
                [0] * len(groups)
            ]
            column = np.searchsorted(groups, part["group"])
            for quantity in ("calls", "mass", "loss"):
                values = np.zeros((len(places), len(groups)))
                np.add.at(values, (part["place"].to_numpy(), column), part[quantity].to_numpy(np.float64))
                whole = np.broadcast_to(values.sum(axis=1, keepdims=True), values.shape)
                interval = bootstrap.interval(ratio, np.stack([values, whole], axis=1))
                found.append(rows(about, quantity, "share", interval, bootstrap.confidence).assign(by=by, group=groups))
    return pd.concat(found, ignore_index=True)


def _choosers(cells: Cells, bootstrap: ClusterBootstrap) -> pd.DataFrame:
    """Perplexity of other choosers and weight conventions relative to router_rank with own weights, same miss rule and capacity."""
    chosen = cells.policies["arm"].isin(["chooser", "convention"]).to_numpy()
    others = np.flatnonzero(chosen)
    base = [
        cells.index(arm="grid", policy=cells.policies["family"].iloc[place], capacity=cells.policies["capacity"].iloc[place])
        for place in others
    ]
    change = cells.nll[:, others] - cells.nll[:, base]
    columns = np.stack([change, np.broadcast_to(cells.scored[:, None], change.shape)], axis=1)
    interval = bootstrap.interval(perplexity_change, columns)
    return rows(cells.policies.loc[others, [*ABOUT, "seeds"]], "against_router_rank", "share", interval, bootstrap.confidence).assign(
        base=[cells.policies["policy"].iloc[place] for place in base]
    )
