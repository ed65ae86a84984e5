"""E7: when answers part from the reference's."""

from __future__ import annotations

import matplotlib.figure

from expertmiss.figures.base import Figure, Tables
from expertmiss.figures.e7_panels import TITLES, task_panels
from expertmiss.figures.style import legend, percent_axis, policy_look, policy_order


def draw(tables: Tables) -> matplotlib.figure.Figure:
    """One line an arm."""
    rows = tables["e7_survival"]
    tasks, arms = list(dict.fromkeys(rows["task"])), policy_order(rows["arm"])
    figure, axes = task_panels(tasks, 1.9)
    for task, panel in zip(tasks, axes, strict=True):
        for arm in arms:
            line = rows[(rows["task"] == task) & (rows["arm"] == arm)].sort_values("position")
            look = policy_look(arm, arms)
            if len(line):
                panel.plot(line["position"], line["share"], color=look.colour, linestyle=look.dashes, label=arm)
        panel.set_ylim(0, 1.02)
        panel.set_xlim(left=0)
        panel.set_ylabel("Still the same")
        percent_axis(panel.yaxis)
    axes[-1].set_xlabel("Generated tokens")
    legend(figure, axes[0])
    return figure


def alt(tables: Tables) -> str:
    """Share of equal answers at the end of each line."""
    last = tables["e7_survival"].sort_values("position").groupby(["task", "arm"], sort=True).tail(1)
    parts = [f"{TITLES.get(row['task'], row['task'])}, {row['arm']}: {100 * row['share']:.1f} %" for row in last.to_dict("records")]
    return "Share of answers whose tokens are still the reference's, by number of tokens. At the end: " + "; ".join(sorted(parts)) + "."


FIGURE = Figure(
    name="e7_divergence",
    title="When answers part",
    order=172,
    needs=("e7_survival",),
    caption=lambda tables: (
        "Share of problems whose first tokens are those of the lossless reference, by how many. Equal answers stay equal, of whatever length, so a line ends at the "
        "share of equal answers. Lines carry no intervals; the table of agreement does."
    ),
    alt=alt,
    draw=draw,
)
