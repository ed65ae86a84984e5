"""E2: perplexity rise against substituted gate mass, one point a policy."""

from __future__ import annotations

import matplotlib.figure
import pandas as pd
from matplotlib.ticker import FuncFormatter

from expertmiss.figures.base import Figure, Tables
from expertmiss.figures.style import MUTED, SERIES, canvas, legend, level, percent_axis


def points(measures: pd.DataFrame) -> pd.DataFrame:
    """One row a policy: arm, family, mean mass, perplexity change with bounds."""
    chosen = measures[measures["arm"] != "reference"]
    keys = ["policy", "arm", "family"]
    wide = chosen.pivot(index=keys, columns="measure", values="estimate")[["mean_mass", "perplexity_change"]]
    bounds = chosen[chosen["measure"] == "perplexity_change"].set_index(keys)[["low", "high"]]
    return wide.join(bounds).reset_index()


def draw(tables: Tables) -> matplotlib.figure.Figure:
    """Policies that protect the first choice in colour by family, the others hollow."""
    rows = points(tables["e2_measures"])
    figure, axes = canvas()
    families = list(dict.fromkeys(tables["e2_measures"].loc[tables["e2_measures"]["arm"] == "protected", "family"]))
    for family, (colour, marker) in zip(families, SERIES, strict=False):
        part = rows[(rows["arm"] == "protected") & (rows["family"] == family)]
        axes.vlines(part["mean_mass"], part["low"], part["high"], color=colour, linewidth=0.8)
        axes.plot(part["mean_mass"], part["perplexity_change"], color=colour, marker=marker, linestyle="none", label=family)
    other = rows[rows["arm"] == "unprotected"]
    axes.vlines(other["mean_mass"], other["low"], other["high"], color=MUTED, linewidth=0.8)
    axes.plot(
        other["mean_mass"],
        other["perplexity_change"],
        color=MUTED,
        marker="o",
        markerfacecolor="none",
        linestyle="none",
        label="first choice not protected",
    )
    axes.set_yscale("symlog", linthresh=0.01)
    axes.set_xlabel("Substituted gate mass per token-layer")
    axes.set_ylabel("Perplexity change against fetch_all")
    percent_axis(axes.yaxis)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    legend(figure, axes)
    return figure


FIGURE = Figure(
    name="e2_mass",
    title="Loss against substituted mass",
    order=130,
    needs=("e2_measures",),
    caption=lambda tables: (
        "One point a policy, at the claims' capacity, all on the same tokens. Coloured: policies that always execute the first choice, by "
        "family; hollow: policies that may replace it. Linear below 1 %, logarithmic above. "
        f"Bars: {level(tables['e2_measures'])} intervals over sources."
    ),
    alt=lambda tables: "Points of loss against substituted mass. " + "; ".join(
        f"{row['policy']}: mass {row['mean_mass']:.3f}, {100 * row['perplexity_change']:+.2f} %" for row in points(tables["e2_measures"]).to_dict("records")
    ) + ".",
    draw=draw,
)  # fmt: skip
