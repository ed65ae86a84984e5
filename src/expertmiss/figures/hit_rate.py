"""Hit rate against capacity, by policy."""

from __future__ import annotations

from expertmiss.figures.base import Figure
from expertmiss.figures.panels import against_capacity, spoken
from expertmiss.figures.style import level

FIGURE = Figure(
    name="hit_rate",
    title="Hit rate against capacity",
    order=10,
    needs=("summary",),
    caption=lambda tables: (
        "Share of calls whose expert is resident, by policy and number of resident experts per layer. "
        f"Bands are {level(tables['summary'])} intervals over sources of documents."
    ),
    alt=lambda tables: "Line chart of the hit rate, one line per policy. " + spoken(tables["summary"], "hit_rate", share=True),
    draw=lambda tables: against_capacity(tables["summary"], "hit_rate", "Hit rate (share of calls)", share=True),
)
