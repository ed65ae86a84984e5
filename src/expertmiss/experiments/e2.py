"""Stage analyze_e2: does substituted gate mass order policies by loss, and inputs (claims C2, C2a, C2b)?

Inputs:  cells and open_loop of emulate_policies e2; config/claims.yaml.
Outputs: e2_measures (loss and routing of every policy), e2_statistics (correlations over policies and over inputs), e2_gap (closed minus open
         loop), e2_orders (C8).
Steps:   Pearson r over policies, documents resampled by source; leave one family out; rival measures; rank correlation over inputs within domains.

Policies share tokens and thresholds are nested, so p-values over policies would be wrong: only documents are resampled.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from expertmiss.experiments.cells import Array, Cells, load_cells, loop_gap, measure_rows, order_reversals
from expertmiss.experiments.lock import verify
from expertmiss.experiments.output import Clock, statistic, write_analysis
from expertmiss.experiments.plans import load_claims
from expertmiss.paths import project_root
from expertmiss.stages import Context
from expertmiss.stats.bootstrap import ClusterBootstrap, Interval

STAGE = "analyze_e2"
# Totals of these meters are means per token-layer up to one factor: documents are of equal length.
PREDICTORS = ("mass", "substituted", "fetches", "heaviest")
NAMES = {"mass": "mass", "substituted": "share of calls", "fetches": "fetches", "heaviest": "heaviest weight"}


def run(cfg: dict[str, Any], *, out: Path, context: Context, cells: Path, open_loop: Path, claims: Path) -> None:
    """Write the tables and ``run.json`` into ``out``; ``cfg``: ``stats``.

    Raises:
        UserError: a table is missing, incomplete or of other policies.
    """
    clock = Clock()
    lock = verify(project_root(), "claims", claims)
    closed, opened, rules = load_cells(cells), load_cells(open_loop), load_claims(claims)["claims"]
    bootstrap = ClusterBootstrap(closed.documents["source"].to_numpy(), **cfg["stats"])
    protected, unprotected = (np.flatnonzero(closed.policies["arm"] == arm) for arm in ("protected", "unprotected"))
    columns = policy_columns(closed, protected)
    count = len(closed.documents)
    found = [*over_policies(closed, protected, columns, bootstrap), *left_out(closed, protected, columns, bootstrap)]
    other = bootstrap.interval(lambda totals: correlations(totals)[:, :1], policy_columns(closed, unprotected))
    found.append(statistic("C2b", "r of mass", "correlation", other, bootstrap, count, 0) | {"policies": len(unprotected)})
    found += left_out(closed, unprotected, policy_columns(closed, unprotected), bootstrap, "C2b", "policy")
    found += _over_inputs(closed, protected, bootstrap, cfg["stats"])
    kinds = {
        "r of mass": lambda totals: correlations(totals)[:, 0],
        "r of mass minus |r| of share of calls": lambda totals: correlations(totals)[:, 0] - np.abs(correlations(totals)[:, 1]),
    }
    options = (rules["C8"]["orders"], rules["C8"]["fraction"], 8)
    orders = pd.DataFrame(
        [{"claim": "C2", "statistic": name, **order_reversals(kind, columns, *options), "documents": count} for name, kind in kinds.items()]
    )
    tables = {
        "e2_measures": measure_rows(closed, bootstrap), "e2_statistics": pd.DataFrame(found), "e2_gap": loop_gap(closed, opened, bootstrap),
        "e2_orders": orders,
    }  # fmt: skip
    write_analysis(
        out,
        STAGE,
        "E2: does gate mass order policies by loss",
        cfg,
        context,
        clock,
        closed,
        bootstrap,
        tables,
        [cells, open_loop],
        lock,
        rules["C2"]["residency"],
    )


def policy_columns(cells: Cells, chosen: NDArray[np.int64]) -> Array:
    """[N, 1 + predictors, P]: NLL difference, then the predictors."""
    return np.stack([cells.change()[:, chosen], *(cells.meters[name][:, chosen] for name in PREDICTORS)], axis=1)


def correlations(totals: Array) -> Array:
    """Pearson r over policies of the loss with every predictor: totals [X, 1 + predictors, P] to [X, predictors]."""
    centred = totals - totals.mean(axis=2, keepdims=True)
    loss, others = centred[:, :1], centred[:, 1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        r: Array = (loss * others).sum(axis=2) / np.sqrt((loss**2).sum(axis=2) * (others**2).sum(axis=2))
    return r


def over_policies(cells: Cells, chosen: NDArray[np.int64], columns: Array, bootstrap: ClusterBootstrap) -> list[dict[str, Any]]:
    """r of every predictor with the loss, and how far that of mass is ahead of its rivals; ``columns``: :func:`policy_columns`."""
    count, policies = len(cells.documents), {"policies": len(chosen)}
    r = bootstrap.interval(correlations, columns)
    # Fewer fetches go with more loss: rivals are compared by the strength of their correlation.
    ahead = bootstrap.interval(lambda totals: correlations(totals)[:, :1] - np.abs(correlations(totals)[:, 1:]), columns)
    found = [
        statistic("C2", f"r of {NAMES[name]}", "correlation", r, bootstrap, count, place) | policies
        for place, name in enumerate(PREDICTORS)
    ]
    return found + [
        statistic("C2", f"r of mass minus |r| of {NAMES[name]}", "correlation", ahead, bootstrap, count, place) | policies
        for place, name in enumerate(PREDICTORS[1:])
    ]


def left_out(
    cells: Cells, chosen: NDArray[np.int64], columns: Array, bootstrap: ClusterBootstrap, claim: str = "C2", by: str = "family"
) -> list[dict[str, Any]]:  # fmt: skip
    """r of mass with every family (C2) or every policy (C2b) left out in turn."""
    families = cells.policies[by].to_numpy()[chosen]
    found = []
    for family in dict.fromkeys(families):
        kept = columns[:, :, families != family]
        r = bootstrap.interval(lambda totals: correlations(totals)[:, :1], kept)
        row = statistic(claim, f"r of mass without {family}", "correlation", r, bootstrap, len(cells.documents), 0)
        found.append(row | {"policies": kept.shape[2]})
    return found


def _over_inputs(cells: Cells, chosen: NDArray[np.int64], bootstrap: ClusterBootstrap, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Spearman correlation of a document's mass and loss within domains: of every protected policy, and their mean."""
    mass, loss = cells.meters["mass"][:, chosen], cells.change()[:, chosen]
    domains = np.unique(cells.documents["domain"], return_inverse=True)[1]
    _, clusters = np.unique(cells.documents["source"], return_inverse=True)
    whole = within_domain_spearman(mass, loss, domains)
    draw = np.random.default_rng(options["seed"])
    members = [np.flatnonzero(clusters == cluster) for cluster in range(clusters.max() + 1)]
    drawn = []
    for _ in range(options["resamples"]):
        documents = np.concatenate([members[cluster] for cluster in draw.integers(0, len(members), len(members))])
        drawn.append(within_domain_spearman(mass[documents], loss[documents], domains[documents]))
    values = np.concatenate([np.stack(drawn), np.stack(drawn).mean(axis=1, keepdims=True)], axis=1)
    tail = (1 - options["confidence"]) / 2
    # Ranks are no smooth function of totals: plain percentiles.
    low, high = np.nanquantile(values, [tail, 1 - tail], axis=0)
    interval = Interval(np.append(whole, whole.mean()), low, high, bootstrap.clusters, bootstrap.reliable)
    names = [*cells.policies["policy"].to_numpy()[chosen], "mean of policies"]
    return [
        statistic("C2a", f"rho of inputs, {name}", "correlation", interval, bootstrap, len(cells.documents), place)
        | {"policies": len(chosen) if place == len(chosen) else 1}
        for place, name in enumerate(names)
    ]


def within_domain_spearman(mass: Array, loss: Array, domains: NDArray[np.int64]) -> Array:
    """Rank correlation of mass and loss [N, P] over documents, ranks taken and centred within each domain: [P].

    NaN where a policy's mass or loss is the same in every document of every domain.
    """
    ranked = [np.zeros(mass.shape), np.zeros(mass.shape)]
    for domain in np.unique(domains):
        chosen = domains == domain
        for target, values in zip(ranked, (mass, loss), strict=True):
            ranks = rankdata(values[chosen], axis=0)
            target[chosen] = ranks - ranks.mean(axis=0)
    one, other = ranked
    with np.errstate(divide="ignore", invalid="ignore"):
        rho: Array = (one * other).sum(axis=0) / np.sqrt((one**2).sum(axis=0) * (other**2).sum(axis=0))
    return rho
