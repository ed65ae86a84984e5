"""Experiment B: loss of the arms against the substituted mass (dose-response)."""

from __future__ import annotations

import matplotlib.figure
import pandas as pd

from expertmiss.figures.base import Figure, Tables
from expertmiss.figures.style import BLUE, GREEN, MUTED, VERMILION, canvas, legend, level

LOOKS = {"heavy": (VERMILION, "s", "-"), "random": (GREEN, "D", (0, (4, 1.4))), "light": (BLUE, "o", (0, (1.2, 1.2)))}


def chosen(tables: Tables) -> pd.DataFrame:
    """Arms on natural misses with the router's own substitutes."""
    rows = tables["b_arms"]
    return rows[rows["kind"] == "natural"].sort_values("mu")


def draw(tables: Tables) -> matplotlib.figure.Figure:
    """One line an arm over the realised mass."""
    rows = chosen(tables)
    figure, axes = canvas()
    for order, (colour, marker, dashes) in LOOKS.items():
        part = rows[rows["order"] == order]
        axes.vlines(part["mass"], part["low"], part["high"], color=colour, linewidth=0.9)
        axes.plot(part["mass"], part["estimate"], color=colour, marker=marker, linestyle=dashes, label=order)
    axes.axhline(0, color=MUTED, linewidth=0.6)
    axes.set_xlim(left=0)
    axes.set_xlabel("Realised substituted gate mass per token and layer")
    axes.set_ylabel("NLL against fetch_all (nats per token)")
    legend(figure, axes)
    return figure


def alt(tables: Tables) -> str:
    """Losses of the arms."""
    parts = [
        f"{row['order']} at mass {row['mass']:.4f} ({100 * row['substituted_share']:.1f} % of calls): {row['estimate']:+.4f}"
        for row in chosen(tables).to_dict("records")
    ]
    return "NLL against the lossless reference by substituted mass. " + "; ".join(parts) + "."


FIGURE = Figure(
    name="b_arms",
    title="Loss by substituted mass",
    order=151,
    needs=("b_arms",),
    caption=lambda tables: (
        "NLL against the lossless reference by realised substituted gate mass (mean over tokens and layers). Heavy, light: only misses of that weight class are "
        f"eligible; random: both. Bars: {level(tables['b_arms'])} intervals over sources of documents."
    ),
    alt=alt,
    draw=draw,
)
