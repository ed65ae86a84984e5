"""E1: whose loss it is when every miss is substituted: shares of calls, mass and loss by rank and by gate weight."""

from __future__ import annotations

import matplotlib.figure
import numpy as np
import pandas as pd
from matplotlib.layout_engine import ConstrainedLayoutEngine

from expertmiss.emulate.attribute import EDGES
from expertmiss.figures.base import Figure, Tables
from expertmiss.figures.style import BLUE, FOOT, GREEN, VERMILION, WIDTH, legend, level, percent_axis

QUANTITIES = {"calls": ("substituted calls", BLUE), "mass": ("their gate weight", GREEN), "loss": ("loss", VERMILION)}
HEIGHT = 3.6


def shown(split: pd.DataFrame) -> pd.DataFrame:
    """Rows of substitute_all at the claims' capacity (the one nearest to 25 %)."""
    rows = split[split["policy"] == "substitute_all"]
    near = (rows["residency"] - 0.25).abs()
    found: pd.DataFrame = rows[near == near.min()]
    return found


def draw(tables: Tables) -> matplotlib.figure.Figure:
    """Two panels: ranks above, weight bins below."""
    rows = shown(tables["e1_split"])
    figure = matplotlib.figure.Figure(
        figsize=(WIDTH, HEIGHT), layout=ConstrainedLayoutEngine(rect=(0.0, FOOT / HEIGHT, 1.0, 1 - FOOT / HEIGHT))
    )
    panels = figure.subplots(2, 1)
    for axes, by in zip(panels, ("rank", "weight"), strict=True):
        part = rows[rows["by"] == by]
        groups = sorted(part["group"].unique())
        places = np.arange(len(groups))
        for offset, (quantity, (label, colour)) in zip((-0.27, 0, 0.27), QUANTITIES.items(), strict=True):
            line = part[part["measure"] == quantity].set_index("group").loc[groups]
            axes.bar(places + offset, line["estimate"], width=0.25, color=colour, alpha=0.8, label=label)
            axes.vlines(places + offset, line["low"], line["high"], color=axes.spines["bottom"].get_edgecolor(), linewidth=0.7)
        axes.set_xticks(places, [name(by, group) for group in groups], fontsize=5.6 if by == "weight" else None)
        axes.set_xlabel("Rank of the substituted call" if by == "rank" else "Gate weight of the substituted call")
        axes.set_ylabel("Share")
        percent_axis(axes.yaxis)
    legend(figure, panels[0])
    return figure


def name(by: str, group: float) -> str:
    """Words of a rank or of a weight bin."""
    if group < 0:
        return "none"
    if by == "rank":
        return f"{group:.0f}"
    upper = EDGES[EDGES.index(min(EDGES, key=lambda edge: abs(edge - group))) + 1]
    return f"{group:g}–{upper:g}"


def alt(tables: Tables) -> str:
    """The loss shares by rank."""
    rows = shown(tables["e1_split"])
    loss = rows[(rows["by"] == "rank") & (rows["measure"] == "loss")].sort_values("group")
    parts = [
        f"{'no own substitution' if row['group'] < 0 else 'rank ' + format(row['group'], '.0f')} {100 * row['estimate']:.1f} %"
        for row in loss.to_dict("records")
    ]
    return "Bars of the shares of calls, gate weight and loss by rank and by gate weight. Loss: " + ", ".join(parts) + "."


FIGURE = Figure(
    name="e1_split",
    title="Whose loss it is",
    order=120,
    needs=("e1_split",),
    caption=lambda tables: (
        "Every miss substituted, at the capacity nearest to 25 %: shares of the substituted calls, of their gate weight, and of the loss, by rank and "
        "by gate weight. A token's loss is divided among its substituted calls by weight; 'none': tokens without a substitution of their own. "
        f"A description, not a cause. Bars: {level(tables['e1_split'])} intervals over sources."
    ),
    alt=alt,
    draw=draw,
)
