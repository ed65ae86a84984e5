"""E7: agreement with the reference against substituted mass."""

from __future__ import annotations

import matplotlib.figure
import pandas as pd

from expertmiss.figures.base import Figure, Tables
from expertmiss.figures.e7_panels import TITLES, task_panels
from expertmiss.figures.style import legend, level, percent_axis, policy_look, policy_order


def chosen(tables: Tables) -> pd.DataFrame:
    """One row a task and arm."""
    rows = tables["e7_paired"]
    return rows[rows["primary"]]


def draw(tables: Tables) -> matplotlib.figure.Figure:
    """One point an arm."""
    rows = chosen(tables)
    tasks, arms = list(dict.fromkeys(rows["task"])), policy_order(rows["arm"])
    figure, axes = task_panels(tasks, 1.9)
    for task, panel in zip(tasks, axes, strict=True):
        part = {row["arm"]: row for row in rows[rows["task"] == task].to_dict("records")}
        for arm in arms:
            if row := part.get(arm):
                look = policy_look(arm, arms)
                panel.vlines(row["mass"], row["same_text_low"], row["same_text_high"], color=look.colour, linewidth=0.9)
                panel.plot(row["mass"], row["same_text"], color=look.colour, marker=look.marker, linestyle="none", label=arm)
        panel.set_xlim(left=0)
        panel.set_ylim(-0.04, 1.04)
        panel.set_ylabel("Same text")
        percent_axis(panel.yaxis)
    axes[-1].set_xlabel("Substituted gate mass per token-layer")
    legend(figure, axes[0])
    return figure


def alt(tables: Tables) -> str:
    """Mass and agreement of all arms."""
    parts = [
        f"{TITLES.get(row['task'], row['task'])}, {row['arm']}: {100 * row['same_text']:.1f} % at mass {row['mass']:.3g}"
        for row in chosen(tables).to_dict("records")
    ]
    return "Share of answers equal to the reference's against substituted mass. " + "; ".join(parts) + "."


FIGURE = Figure(
    name="e7_agreement",
    title="Agreement against substituted mass",
    order=171,
    needs=("e7_paired",),
    caption=lambda tables: (
        "Share of problems whose text equals the lossless reference's, letter by letter, against the mean substituted gate mass of the arm's own decode steps. "
        f"Bars: {level(tables['e7_paired'])} intervals over templates (problems, where there are none)."
    ),
    alt=alt,
    draw=draw,
)
