"""E1: perplexity rise against the share of calls that are substituted, one line a capacity."""

from __future__ import annotations

import matplotlib.figure
import pandas as pd
from matplotlib.ticker import FuncFormatter

from expertmiss.figures.base import Figure, Tables
from expertmiss.figures.style import SERIES, canvas, legend, level, percent_axis


def grid(measures: pd.DataFrame) -> pd.DataFrame:
    """Miss rules of the grid, one row each: share substituted, perplexity change with bounds, by capacity and share."""
    chosen = measures[measures["arm"] == "grid"]
    keys = ["policy", "miss_rule", "capacity", "residency", "few_residents"]
    wide = chosen.pivot(index=keys, columns="measure", values="estimate")[["perplexity_change", "substituted_share", "mean_mass"]]
    bounds = chosen[chosen["measure"] == "perplexity_change"].set_index(keys)[["low", "high"]]
    return wide.join(bounds).reset_index().sort_values(["capacity", "substituted_share"])


def draw(tables: Tables) -> matplotlib.figure.Figure:
    """Thresholds are joined by a line; the last point, off the line's end, substitutes first choices too."""
    rows = grid(tables["e1_measures"])
    figure, axes = canvas()
    for place, (capacity, part) in enumerate(rows.groupby("capacity")):
        colour, marker = SERIES[place % len(SERIES)]
        line = part[part["miss_rule"] != "substitute_all"]
        axes.fill_between(line["substituted_share"], line["low"], line["high"], color=colour, alpha=0.14, linewidth=0)
        label = f"C = {capacity} ({100 * part['residency'].iloc[0]:.3g} %)"
        axes.plot(line["substituted_share"], line["perplexity_change"], color=colour, marker=marker, label=label)
        last = part[part["miss_rule"] == "substitute_all"]
        axes.plot(
            last["substituted_share"],
            last["perplexity_change"],
            color=colour,
            marker=marker,
            markerfacecolor="none",
            linestyle="none",
            markersize=5,
        )
        axes.vlines(last["substituted_share"], last["low"], last["high"], color=colour, linewidth=0.8)
    axes.axhline(0, color=axes.spines["bottom"].get_edgecolor(), linewidth=0.6)
    axes.set_yscale("symlog", linthresh=0.01)
    axes.set_ylim(bottom=min(-0.001, 1.1 * float(rows["low"].min())))
    axes.set_xlabel("Substituted calls (share of all calls)")
    axes.set_ylabel("Perplexity change against fetch_all")
    percent_axis(axes.xaxis)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    legend(figure, axes)
    return figure


def alt(tables: Tables) -> str:
    """Numbers of the points."""
    rows = grid(tables["e1_measures"])
    points = [
        f"{row['policy']} at C = {row['capacity']}: {100 * row['substituted_share']:.1f} % of calls, {100 * row['perplexity_change']:+.2f} %"
        for row in rows.to_dict("records")
    ]
    return "Perplexity change against the share of substituted calls. " + "; ".join(points) + "."


FIGURE = Figure(
    name="e1_loss",
    title="What substitutions cost",
    order=110,
    needs=("e1_measures",),
    caption=lambda tables: (
        "Perplexity change against fetch_all on the same tokens, by share of substituted calls (LRU, every miss admitted). Filled: the first "
        "choice is always waited for, thresholds rise to the right; hollow: every miss is substituted. "
        f"Linear below 1 %, logarithmic above. Bands and bars: {level(tables['e1_measures'])} intervals over sources of documents."
    ),
    alt=alt,
    draw=draw,
)
