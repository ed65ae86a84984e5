"""Reuse distance in tokens, by domain."""

from __future__ import annotations

from expertmiss.figures.base import Figure
from expertmiss.figures.reuse_panels import draw_reuse, first_uses, spoken_reuse
from expertmiss.figures.style import level

FIGURE = Figure(
    name="reuse_tokens",
    title="Reuse distance in tokens",
    order=50,
    needs=("reuse",),
    caption=lambda tables: (
        "How far apart two requests of one expert are, within a document and a layer, by domain. "
        f"Bands are {level(tables['reuse'])} intervals over sources. " + first_uses(tables)
    ),
    alt=lambda tables: spoken_reuse(tables, "tokens"),
    draw=lambda tables: draw_reuse(tables, "tokens", "Tokens since the previous request of the expert", log=True),
)
