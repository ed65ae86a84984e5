"""Reuse distance in distinct experts, by domain."""

from __future__ import annotations

from expertmiss.figures.base import Figure
from expertmiss.figures.reuse_panels import draw_reuse, first_uses, spoken_reuse

FIGURE = Figure(
    name="reuse_experts",
    title="Reuse distance in distinct experts",
    order=40,
    needs=("reuse",),
    caption=lambda tables: (
        "How far apart two requests of one expert are, within a document and a layer, by domain. "
        "An LRU cache of C experts that answers requests one by one holds those at a distance below C. " + first_uses(tables)
    ),
    alt=lambda tables: spoken_reuse(tables, "experts"),
    draw=lambda tables: draw_reuse(tables, "experts", "Distinct other experts requested in between", log=False),
)
