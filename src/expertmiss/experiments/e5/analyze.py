"""Stage analyze_e5: speed and perplexity of the same run on the engine (claims C5, C5a, C5b, C2 on the engine), and the time model's errors.

Inputs:  cells and times of run_engine; the host's profile of calibrate_host; the trace of the decoded split and the calibration trace; the claims
         and E5's rules.
Outputs: e5_measures (loss and routing of every policy), e5_times (time per token and its parts, bytes, speed against fetch_all), e5_statistics
         (what the rules need), e5_prediction (the time model, cell by cell), e5_orders (C8).
Steps:   quality: sources of documents resampled; time: (stream, repeat) pairs resampled, log ratios; C2 as in E2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from expertmiss.engine.calibrate import load_profile
from expertmiss.errors import UserError
from expertmiss.experiments.cells import (
    ABOUT,
    Array,
    Cells,
    load_cells,
    loss_columns,
    measure_rows,
    order_reversals,
    perplexity_change,
    rows,
)
from expertmiss.experiments.e2 import left_out, over_policies, policy_columns
from expertmiss.experiments.e5.plan import PAPER, PROTECTED, load_rules
from expertmiss.experiments.e5.predict import predictions, summary
from expertmiss.experiments.e5.verdicts import FAST
from expertmiss.experiments.lock import verify
from expertmiss.experiments.output import Clock, statistic, write_analysis
from expertmiss.experiments.plans import load_claims
from expertmiss.files import read_json
from expertmiss.paths import project_root
from expertmiss.policies import request_counts
from expertmiss.simulate.time_model import HostTimes
from expertmiss.stages import Context
from expertmiss.stats.bootstrap import ClusterBootstrap, ratio
from expertmiss.stats.tables import read_table
from expertmiss.traces.format import Trace

STAGE = "analyze_e5"
PARTS = ("wall", "compute", "waiting", "deciding", "background")
BYTES = ("fetch_bytes", "admission_bytes")
CLAIM_2 = "C2 (engine)"


def run(
    cfg: dict[str, Any], *, out: Path, context: Context, cells: Path, times: Path, profile: Path, trace: Path, calibration: Path, claims: Path,
    rules: Path,
) -> None:  # fmt: skip
    """Write the tables and ``run.json`` into ``out``; ``cfg``: ``stats``, ``model.substrate``, ``host.name``, ``corpus.name``.

    Raises:
        UserError: a table is missing, incomplete, or made under other rules; a trace without the timed streams.
    """
    clock = Clock()
    lock, own_lock = verify(project_root(), "claims", claims), verify(project_root(), "e5", rules)
    made = read_json(cells.parent / "run.json").get("config", {}).get("e5_lock", "none")
    if made != own_lock:
        raise UserError(f"{cells}: run under other rules than those locked now ({made[:12]}, {own_lock[:12]}); run run_engine again")
    known, fixed = load_claims(claims)["claims"], load_rules(rules)
    closed, timed = load_cells(cells), read_table(times, [*ABOUT, "document", "source", "repeat", "tokens", "nll", *PARTS, *BYTES]).frame
    bootstrap = ClusterBootstrap(closed.documents["source"].to_numpy(), **cfg["stats"])
    clock_time = time_bootstrap(timed, cfg["stats"], fixed)
    trained = cfg["model"]["substrate"] != "random_weights"
    statistics = pd.DataFrame([*speed_and_loss(closed, timed, bootstrap, clock_time), *mass_ranking(closed, bootstrap)]).assign(
        trained=trained
    )
    expected = predictions(timed, Trace.open(trace), request_counts(Trace.open(calibration)), HostTimes.of(load_profile(profile)), fixed)
    errors = summary(expected)
    expected = expected.assign(
        target=fixed["prediction"]["target"], **{f"median_error_{name}": errors[name] for name in ("calibrated", "fitted", "bytes")}
    )
    tables = {
        "e5_measures": measure_rows(closed, bootstrap), "e5_times": time_rows(timed, cfg["stats"], fixed), "e5_statistics": statistics,
        "e5_prediction": expected, "e5_orders": orders(closed, known["C8"]),
    }  # fmt: skip
    write_analysis(
        out, STAGE, "E5: speed and perplexity on the engine", {**cfg, "e5_lock": own_lock}, context, clock, closed, bootstrap, tables,
        [cells, times, profile, trace, calibration, rules], lock, fixed["residency"], also={"pairs": clock_time.clusters},
    )  # fmt: skip


def pair_names(frame: pd.DataFrame) -> pd.Series:
    """The (stream, repeat) pair of every line."""
    return frame["document"].astype(str) + "/" + frame["repeat"].astype(str)


def by_pair(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """``column`` with pairs down and policies across, complete."""
    wide = frame.assign(pair=pair_names(frame)).pivot(index="pair", columns="policy", values=column)
    if wide.isna().any(axis=None):
        raise UserError("times.parquet: a policy lacks a (stream, repeat) pair; run run_engine again")
    return wide


def time_bootstrap(timed: pd.DataFrame, options: dict[str, Any], fixed: dict[str, Any]) -> ClusterBootstrap:
    """Resamples of the (stream, repeat) pairs of the paper's policies."""
    pairs = by_pair(timed[timed["arm"].isin(PAPER)], "wall").index
    return ClusterBootstrap(pairs.to_numpy(), **{**options, "min_clusters": fixed["min_pairs"]})


def geometric_mean(totals: Array) -> Array:
    """exp of a mean of logarithms: column 0 their sum, column 1 their number."""
    found: Array = np.exp(totals[:, 0] / totals[:, 1])
    return found


def log_ratio(over: pd.Series, under: pd.Series) -> Array:
    """[pairs, 2]: log of the ratio of times, and one."""
    return np.stack([np.log(over.to_numpy() / under.to_numpy()), np.ones(len(over))], axis=1)


def speed_and_loss(closed: Cells, timed: pd.DataFrame, bootstrap: ClusterBootstrap, clock: ClusterBootstrap) -> list[dict[str, Any]]:
    """The statistics of C5, C5a and C5b; ``kind`` says whether sources or pairs were resampled."""
    wall = by_pair(timed[timed["arm"].isin(PAPER)], "wall")
    count, place = (
        len(closed.documents),
        {name: closed.index(policy=name, arm="reference" if name == "fetch_all" else "paper") for name in wall},
    )
    losses = bootstrap.interval(perplexity_change, loss_columns(closed))
    found = [
        statistic("C5", f"D of {name}", "share", losses, bootstrap, count, place[name]) | {"kind": "quality"}
        for name in (*FAST, "substitute_all")
    ]

    def compared(claim: str, name: str, over: str, under: str) -> dict[str, Any]:
        interval = clock.interval(geometric_mean, log_ratio(wall[over], wall[under]))
        return statistic(claim, name, "ratio", interval, clock, count) | {"kind": "time"}

    found += [compared("C5", f"ratio of {name}", "fetch_all", name) for name in FAST]
    for claim, name in (("C5a", "quality_first"), ("C5b", "speed_first")):
        change = closed.nll[:, place[name]] - closed.nll[:, place["rule_015"]]
        columns = np.stack([change, closed.scored], axis=1)
        nats, rise = bootstrap.interval(ratio, columns), bootstrap.interval(perplexity_change, columns)
        found += [
            statistic(claim, "NLL difference", "nats", nats, bootstrap, count) | {"kind": "quality"},
            statistic(claim, "perplexity rise", "share", rise, bootstrap, count) | {"kind": "quality"},
            compared(claim, "time ratio", name, "rule_015"),
        ]
    return found


def mass_ranking(closed: Cells, bootstrap: ClusterBootstrap) -> list[dict[str, Any]]:
    """E2's correlations over the protected policies, from the engine's runs."""
    chosen = np.flatnonzero(closed.policies["arm"] == PROTECTED)
    columns = policy_columns(closed, chosen)
    found = [*over_policies(closed, chosen, columns, bootstrap), *left_out(closed, chosen, columns, bootstrap)]
    return [row | {"claim": CLAIM_2, "kind": "quality"} for row in found]


def time_rows(timed: pd.DataFrame, options: dict[str, Any], fixed: dict[str, Any]) -> pd.DataFrame:
    """Long form: milliseconds and bytes per token by part, and how many times as fast as fetch_all at the same capacity in the same pairs.

    C2's policies and further capacities were timed in the first repeat only: ``pairs`` says how many pairs a line has.
    """
    frames = []
    for (_, capacity), part in timed.assign(group=timed["arm"].replace(dict.fromkeys(PAPER, "paper"))).groupby(
        ["group", "capacity"], sort=False
    ):
        own = part.drop_duplicates("row").sort_values("row")
        bootstrap = ClusterBootstrap(by_pair(part, "wall").index.to_numpy(), **{**options, "min_clusters": fixed["min_pairs"]})
        about = own[ABOUT].assign(pairs=bootstrap.clusters)
        tokens = by_pair(part, "tokens")[own["policy"]].to_numpy(np.float64)
        for name in (*PARTS, *BYTES):
            scale, unit = (1e3, "ms") if name in PARTS else (1.0, "bytes")
            values = scale * by_pair(part, name)[own["policy"]].to_numpy(np.float64)
            frames.append(rows(about, name, unit, bootstrap.interval(ratio, np.stack([values, tokens], axis=1)), bootstrap.confidence))
        wall = by_pair(part, "wall")
        reference = timed[(timed["policy"] == "fetch_all") & (timed["capacity"] == capacity)]
        base = reference.assign(pair=pair_names(reference)).set_index("pair")["wall"].loc[wall.index]
        columns = np.stack([log_ratio(base, wall[name]) for name in own["policy"]], axis=2)
        frames.append(rows(about, "speed", "ratio", bootstrap.interval(geometric_mean, columns), bootstrap.confidence))
    return pd.concat(frames, ignore_index=True).assign(documents=timed["document"].nunique())


def orders(closed: Cells, rule: dict[str, Any]) -> pd.DataFrame:
    """C8 for the two NLL differences."""
    base, found = closed.nll[:, closed.index(policy="rule_015", arm="paper")], []
    for claim, name in (("C5a", "quality_first"), ("C5b", "speed_first")):
        columns = np.stack([closed.nll[:, closed.index(policy=name, arm="paper")] - base, closed.scored], axis=1)
        turned = order_reversals(lambda totals: totals[:, 0] / totals[:, 1], columns, rule["orders"], rule["fraction"], 8)
        found.append({"claim": claim, "statistic": f"NLL of {name} minus rule_015", **turned, "documents": len(closed.documents)})
    return pd.DataFrame(found)
