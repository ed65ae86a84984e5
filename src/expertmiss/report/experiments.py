"""What the sections of the emulated experiments share: their own sample, tables of policies, closed against open loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from expertmiss.report.base import Page
from expertmiss.report.numbers import SPACE, digits_for, show, show_interval
from expertmiss.report.shown import Cell, ShownTable, estimate_cell
from expertmiss.stats.measures import MEASURES

TITLES = {"perplexity_change": "Perplexity change (%)"}
FEW = "‡"  # C < 2K: shown, never ranked


def sample(frame: pd.DataFrame, quick: bool) -> str:
    """The small words behind a claim: the experiment's own sample size, and ``quick run``."""
    row = frame.iloc[0]
    streams = str(row["claim"]) == "C4"
    size = f"{int(row['documents']):,} streams" if streams else f"{int(row['documents']):,} documents, {int(row['clusters'])} sources"
    return f"n = {size}" + ("; quick run" if quick else "")


def number(page: Page, frame: pd.DataFrame, statistic: str, *key: str, signed: bool = False) -> Markup:
    """A statistic of a ``*_statistics`` table, with its interval, recorded for ``numbers.tex``."""
    row = {str(name): value for name, value in frame[frame["statistic"] == statistic].iloc[0].items()}
    unit = "share" if row["unit"] == "share" else "nats" if row["unit"] == "nats" else "weight"
    return page.numbers.estimate((*key, statistic), row, unit, signed=signed)


def policy_table(name: str, title: str, frame: pd.DataFrame, measures: Sequence[str]) -> ShownTable:
    """Policies of one capacity down, measures across, in the order of the plan; ``FEW`` marks C < 2K."""
    chosen = frame[frame["measure"].isin(measures)]
    cells = []
    for policy in dict.fromkeys(chosen["policy"]):
        found = {row["measure"]: row for row in chosen[chosen["policy"] == policy].to_dict("records")}
        flag = f" {FEW}" if any(row["few_residents"] for row in found.values()) else ""
        cells.append([Cell(policy + flag), *(loss_cell(found[measure]) for measure in measures)])
    return ShownTable(name, title, ["Policy", *(TITLES.get(measure) or MEASURES[measure].title for measure in measures)], cells, chosen)


def loss_cell(row: Mapping[Any, Any]) -> Cell:
    """A cell; a perplexity change is signed and in percent of perplexity."""
    if row["measure"] not in TITLES and row["measure"] != "against_router_rank":
        return estimate_cell(row)
    digits = 2
    text = show("share", float(row["estimate"]), digits, signed=True).removesuffix(f"{SPACE}points")
    return Cell(
        text + ("" if row["reliable"] == "yes" else " †"), show_interval("share", float(row["low"]), float(row["high"]), digits, True)
    )


def statistics_table(name: str, title: str, frame: pd.DataFrame, extra: Iterable[str] = ()) -> ShownTable:
    """Statistics down, estimate with interval across; ``extra`` names further columns of numbers."""
    cells = []
    for row in frame.to_dict("records"):
        unit = "share" if row["unit"] == "share" else "nats" if row["unit"] == "nats" else "weight"
        digits = digits_for(unit, float(row["estimate"]), float(row["low"]), float(row["high"]))
        mark = "" if row["reliable"] == "yes" else " †"
        cells.append([
            Cell(str(row["statistic"])), Cell(show(unit, float(row["estimate"]), digits) + mark, show_interval(unit, float(row["low"]), float(row["high"]), digits)),
            *(Cell(f"{row[column]:.3g}") for column in extra),
        ])  # fmt: skip
    return ShownTable(name, title, ["Statistic", "Estimate", *extra], cells, frame)


def gap_table(name: str, frame: pd.DataFrame) -> ShownTable:
    """Closed loop, open loop and their difference, for every policy at every capacity."""
    cells = []
    for (policy, capacity), part in frame.groupby(["policy", "capacity"], sort=False):
        found = {row["measure"]: row for row in part.to_dict("records")}
        line = [Cell(f"{policy}, C = {capacity}")]
        for measure in ("hit_rate", "substituted_share", "mean_mass"):
            row = found[measure]
            digits = digits_for(row["unit"], float(row["closed"]), float(row["opened"]))
            line += [Cell(show(row["unit"], float(row["closed"]), digits)), estimate_cell(row, signed=True)]
        cells.append(line)
    columns = ["Policy", "Hit rate", "gap (points)", "Substituted", "gap (points)", "Mass", "gap"]
    title = "Closed loop, and how far it lies from the open loop (closed minus open) on the same documents."
    return ShownTable(name, title, columns, cells, frame)
