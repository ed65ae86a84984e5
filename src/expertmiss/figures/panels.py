"""A measure against capacity, one line a policy: shared by the figures that show one."""

from __future__ import annotations

import matplotlib.figure
import numpy as np
import pandas as pd
from matplotlib.ticker import NullLocator

from expertmiss.figures.style import canvas, legend, percent_axis, policy_look, policy_order


def measure_rows(summary: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Rows of one measure, by capacity."""
    return summary[summary["measure"] == measure].sort_values("capacity")


def against_capacity(summary: pd.DataFrame, measure: str, label: str, share: bool) -> matplotlib.figure.Figure:
    """Estimates with interval bands; with a single capacity, one row a policy with interval bars.

    Args:
        summary: table of summarize_policies.
        measure: name of the measure.
        label: axis label with unit.
        share: whether the measure is shown in percent.
    """
    rows = measure_rows(summary, measure)
    names = policy_order(rows["policy"])
    if rows["capacity"].nunique() == 1:
        return _single(rows, names, label, share)
    figure, axes = canvas()
    for name in names:
        line, look = rows[rows["policy"] == name], policy_look(name, names)
        axes.fill_between(line["capacity"], line["low"], line["high"], color=look.colour, alpha=0.14, linewidth=0)
        axes.plot(line["capacity"], line["estimate"], color=look.colour, marker=look.marker, linestyle=look.dashes, label=name)
    ticks = rows.drop_duplicates("capacity")
    axes.set_xscale("log", base=2)  # capacities double from one to the next, and small ones are where policies differ
    axes.set_xticks(ticks["capacity"], [f"{row['capacity']}\n{100 * row['residency']:.3g} %" for row in ticks.to_dict("records")])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("Resident experts per layer, C (share of all experts)")
    axes.set_ylabel(label)
    if share:
        percent_axis(axes.yaxis)
    if rows["low"].min() >= 0:
        axes.set_ylim(bottom=0 if rows["estimate"].min() < 0.2 * rows["estimate"].max() else None)
    legend(figure, axes)
    return figure


def _single(rows: pd.DataFrame, names: list[str], label: str, share: bool) -> matplotlib.figure.Figure:
    figure, axes = canvas(0.9 + 0.26 * len(names))
    for place, name in enumerate(reversed(names)):
        row, look = rows[rows["policy"] == name].iloc[0], policy_look(name, names)
        axes.plot([row["low"], row["high"]], [place, place], color=look.colour, linewidth=2.0, alpha=0.55, solid_capstyle="butt")
        axes.plot(row["estimate"], place, color=look.colour, marker=look.marker, markersize=4.5, linestyle="none")
    axes.set_yticks(np.arange(len(names)), names[::-1])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xlabel(f"{label}, C = {rows['capacity'].iloc[0]}")
    if share:
        percent_axis(axes.xaxis)
    return figure


def headline(summary: pd.DataFrame, residency: float = 0.25) -> int:
    """The capacity that prose and narrow tables speak of: the one nearest to a quarter of the experts, as in the paper."""
    known = summary.drop_duplicates("capacity")
    return int(known["capacity"].iloc[int((known["residency"] - residency).abs().to_numpy().argmin())])


def spoken(summary: pd.DataFrame, measure: str, share: bool) -> str:
    """The measure of every policy at the headline capacity, for alternative text."""
    capacity = headline(summary)
    rows = measure_rows(summary, measure)
    at = rows[rows["capacity"] == capacity].set_index("policy")["estimate"].to_dict()
    values = [f"{name} {100 * at[name]:.1f} %" if share else f"{name} {at[name]:.3g}" for name in policy_order(map(str, at))]
    return f"At C = {capacity}: " + ", ".join(values) + "."
