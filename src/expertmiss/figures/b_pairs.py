"""Experiment B: the paired difference of every document at the primary level, by domain."""

from __future__ import annotations

import matplotlib.figure
import numpy as np

from expertmiss.figures.b_mass import shares
from expertmiss.figures.base import Figure, Tables
from expertmiss.figures.style import INK, MUTED, canvas, domain_looks


def draw(tables: Tables) -> matplotlib.figure.Figure:
    """Domains down, one mark a document, the mean of the domain as a bar; marks are spread by rank within the domain, not at random."""
    rows = shares(tables)
    looks = domain_looks(rows["domain"])
    figure, axes = canvas()
    for place, (domain, look) in enumerate(looks.items()):
        values = np.sort(rows.loc[rows["domain"] == domain, "difference"].to_numpy())
        spread = place + 0.6 * ((np.arange(len(values)) * 0.618) % 1 - 0.5)
        axes.plot(values, spread, color=look.colour, marker=look.marker, linestyle="none", alpha=0.6, markersize=2.8)
        axes.vlines(values.mean(), place - 0.4, place + 0.4, color=INK, linewidth=1.2)
    axes.axvline(0, color=MUTED, linewidth=0.6)
    axes.set_yticks(np.arange(len(looks)), [name.replace("_", " ") for name in looks])
    axes.set_ylim(len(looks) - 0.5, -0.5)
    axes.set_xlabel("NLL, heavy minus light (nats per token)")
    return figure


def alt(tables: Tables) -> str:
    """Means by domain."""
    found = shares(tables).groupby("domain")["difference"].agg(["mean", "size"])
    parts = [f"{name}: {row['mean']:+.4f} over {int(row['size'])} documents" for name, row in found.iterrows()]
    return "Paired NLL difference, heavy minus light, by domain. " + "; ".join(parts) + "."


FIGURE = Figure(
    name="b_pairs",
    title="Paired differences of documents",
    order=153,
    needs=("b_effects", "b_pairs", "b_plan"),
    caption=lambda tables: (
        "NLL of the heavy arm minus the light arm at the primary level, one mark a document, by domain; bars: means of domains. Above zero few heavy "
        "substitutions cost more."
    ),
    alt=alt,
    draw=draw,
)
