"""Substituted gate mass against capacity, by policy."""

from __future__ import annotations

import matplotlib.figure

from expertmiss.figures.base import Figure, Tables
from expertmiss.figures.panels import against_capacity, spoken
from expertmiss.figures.style import level


def draw(tables: Tables) -> matplotlib.figure.Figure:
    """``fetch_all`` substitutes nothing; its line at zero is the reference."""
    return against_capacity(tables["summary"], "mean_mass", "Substituted gate mass per token-layer", share=False)


FIGURE = Figure(
    name="substituted_mass",
    title="Substituted gate mass against capacity",
    order=20,
    needs=("summary",),
    caption=lambda tables: (
        "Gate weight of the calls answered by another expert, mean per token-layer (0 none, 1 all of it). "
        f"Bands are {level(tables['summary'])} intervals over sources of documents."
    ),
    alt=lambda tables: (
        "Line chart of the substituted gate mass, one line per policy. " + spoken(tables["summary"], "mean_mass", share=False)
    ),
    draw=draw,
)
