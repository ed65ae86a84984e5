"""E7: accuracy of every arm."""

from __future__ import annotations

import matplotlib.figure
import numpy as np
import pandas as pd

from expertmiss.figures.base import Figure, Tables
from expertmiss.figures.e7_panels import TITLES, task_panels
from expertmiss.figures.style import INK, level, percent_axis, policy_look, policy_order


def chosen(tables: Tables) -> pd.DataFrame:
    """Rows of the primary scoring rules that were measured."""
    rows = tables["e7_accuracy"]
    return rows[rows["primary"] & rows["accuracy"].notna()]


def draw(tables: Tables) -> matplotlib.figure.Figure:
    """Arms down, the reference's accuracy as a line."""
    rows = chosen(tables)
    tasks = list(dict.fromkeys(tables["e7_accuracy"]["task"]))
    arms = policy_order(tables["e7_accuracy"]["arm"])
    figure, axes = task_panels(tasks, 0.75 + 0.19 * len(arms))
    for task, panel in zip(tasks, axes, strict=True):
        part = {row["arm"]: row for row in rows[rows["task"] == task].to_dict("records")}
        for place, arm in enumerate(reversed(arms)):
            if row := part.get(arm):
                look = policy_look(arm, arms)
                panel.plot([row["low"], row["high"]], [place, place], color=look.colour, linewidth=2.0, alpha=0.55, solid_capstyle="butt")
                panel.plot(row["accuracy"], place, color=look.colour, marker=look.marker, markersize=4.5, linestyle="none")
        if "fetch_all" in part:
            panel.axvline(part["fetch_all"]["accuracy"], color=INK, linewidth=0.6)
        if not part:
            panel.text(0.5, 0.5, "not measured", ha="center", va="center", transform=panel.transAxes)
        panel.set_yticks(np.arange(len(arms)), arms[::-1])
        panel.set_ylim(-0.6, len(arms) - 0.4)
        panel.set_xlim(left=-0.015)
        percent_axis(panel.xaxis)
    axes[-1].set_xlabel("Problems solved")
    return figure


def alt(tables: Tables) -> str:
    """Accuracies of all arms."""
    parts = [
        f"{TITLES.get(row['task'], row['task'])}, {row['arm']}: {100 * row['accuracy']:.1f} %" for row in chosen(tables).to_dict("records")
    ]
    return "Accuracy by task and arm. " + ("; ".join(parts) or "Not measured") + "."


FIGURE = Figure(
    name="e7_accuracy",
    title="Accuracy under every arm",
    order=170,
    needs=("e7_accuracy",),
    caption=lambda tables: (
        "Share of problems that the first answer solves, by the primary scoring rule. The line stands at the lossless reference. Bars: "
        f"{level(tables['e7_accuracy'])} intervals by Wilson, each arm by itself; differences on the same problems are narrower and stand in the table."
    ),
    alt=alt,
    draw=draw,
)
