"""E4: effect of background admission by the accumulated mass that triggers a load."""

from __future__ import annotations

import math

import matplotlib.figure
import numpy as np

from expertmiss.figures.base import Figure, Tables
from expertmiss.figures.style import MUTED, SERIES, canvas, legend, level


def name(beta: float) -> str:
    """Words of a beta."""
    return "∞" if math.isinf(beta) else f"{beta:g}"


def draw(tables: Tables) -> matplotlib.figure.Figure:
    """One line a base rule and eviction; betas evenly spaced."""
    rows = tables["e4_effects"]
    rows = rows[rows["arm"] == "background"]
    betas = sorted(rows["beta"].unique())
    figure, axes = canvas()
    families = list(dict.fromkeys(rows["family"]))
    for place, family in enumerate(families):
        part = rows[rows["family"] == family].sort_values("beta")
        places = np.array([betas.index(beta) for beta in part["beta"]]) + 0.08 * (place - (len(families) - 1) / 2)
        colour, marker = SERIES[place % len(SERIES)]
        axes.vlines(places, part["low"], part["high"], color=colour, linewidth=0.9)
        axes.plot(places, part["estimate"], color=colour, marker=marker, label=family.replace("/", ", "))
    axes.axhline(0, color=MUTED, linewidth=0.6)
    axes.set_xticks(np.arange(len(betas)), [name(beta) for beta in betas])
    axes.set_xlabel("Accumulated substituted mass that triggers a load (beta)")
    axes.set_ylabel("Background minus fetched_only, nats per token")
    legend(figure, axes, columns=2)
    return figure


FIGURE = Figure(
    name="e4_betas",
    title="When to load in the background",
    order=150,
    needs=("e4_effects",),
    caption=lambda tables: (
        "NLL of background admission minus fetched_only by the accumulated mass that triggers a load: 0 loads every substituted expert at "
        f"the next token, infinity none. Bars: {level(tables['e4_effects'])} intervals over streams."
    ),
    alt=lambda tables: "Effect of background admission by beta. " + "; ".join(
        f"{row['policy']}: {row['estimate']:+.4f} nats" for row in tables["e4_effects"].to_dict("records")
    ) + ".",
    draw=draw,
)  # fmt: skip
