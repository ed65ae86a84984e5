"""Single substitutions: mean loss by rank, one line a bin of gate weight, so that rank and weight are seen apart."""

from __future__ import annotations

import matplotlib.figure
import pandas as pd

from expertmiss.figures.base import Figure, Tables
from expertmiss.figures.style import BLUE, GREEN, MUTED, ORANGE, PURPLE, VERMILION, canvas, legend, level

LOOKS = ((BLUE, "o"), (GREEN, "s"), (ORANGE, "^"), (PURPLE, "D"), (VERMILION, "X"), (MUTED, "v"))


def shown(tables: Tables) -> pd.DataFrame:
    """Cells with enough sites."""
    rows = tables["b_site_cells"]
    return rows[rows["estimate"].notna()]


def words(row: pd.Series) -> str:
    """A bin of weight."""
    return f"{row['weight_from']:g}–{row['weight_to']:g}"


def draw(tables: Tables) -> matplotlib.figure.Figure:
    """Bins are drawn side by side at each rank."""
    rows = shown(tables)
    figure, axes = canvas()
    bins = sorted(rows["weight_from"].unique())
    for place, start in enumerate(bins):
        part = rows[rows["weight_from"] == start].sort_values("rank")
        colour, marker = LOOKS[place % len(LOOKS)]
        x = part["rank"] + 0.1 * (place - (len(bins) - 1) / 2)
        axes.vlines(x, part["low"], part["high"], color=colour, linewidth=0.9)
        axes.plot(x, part["estimate"], color=colour, marker=marker, linestyle="-", linewidth=0.6, label=words(part.iloc[0]))
    axes.axhline(0, color=MUTED, linewidth=0.6)
    axes.set_xlabel("Rank of the substituted call")
    axes.set_ylabel("NLL over the next 32 targets (nats)")
    if bins:
        legend(figure, axes)
    return figure


def alt(tables: Tables) -> str:
    """Means of the cells."""
    parts = [
        f"rank {int(row['rank'])}, weight {words(row)}: {row['estimate']:+.3f} ({int(row['sites'])} sites)"
        for _, row in shown(tables).iterrows()
    ]
    return "Loss of single substitutions by rank and gate weight. " + ("; ".join(parts) or "no cell has enough sites") + "."


FIGURE = Figure(
    name="b_sites",
    title="Rank and weight apart",
    order=154,
    needs=("b_site_cells",),
    caption=lambda tables: (
        "NLL change, summed over the next 32 targets, of one substituted call at a random place, by its rank and its gate weight (lines). Cells of fewer than 30 sites are left "
        f"out. Bars: {level(tables['b_site_cells'])} intervals over documents."
    ),
    alt=alt,
    draw=draw,
)
