"""Experiment B: heavy minus light of every comparison, with the margin of equivalence."""

from __future__ import annotations

import matplotlib.figure
import numpy as np

from expertmiss.figures.base import Figure, Tables
from expertmiss.figures.style import BLUE, INK, MUTED, VERMILION, canvas, legend, level


def margin(tables: Tables) -> float:
    """delta, nats."""
    plan = tables["b_plan"]
    return float(plan.loc[plan["name"] == "delta", "value"].iloc[0])


def draw(tables: Tables) -> matplotlib.figure.Figure:
    """Comparisons down, the primary on top; thick: the interval that equivalence is judged by."""
    rows, delta = tables["b_effects"], margin(tables)
    figure, axes = canvas()
    if delta > 0:
        axes.axvspan(-delta, delta, color=MUTED, alpha=0.15, linewidth=0, label="within delta")
    axes.axvline(0, color=MUTED, linewidth=0.6)
    places = np.arange(len(rows))
    for role, colour, marker in (("primary", VERMILION, "D"), ("secondary", BLUE, "o")):
        chosen = (rows["role"] == role).to_numpy()
        part = rows[chosen]
        axes.hlines(places[chosen], part["low"], part["high"], color=colour, linewidth=0.9)
        axes.hlines(places[chosen], part["low_equivalence"], part["high_equivalence"], color=colour, linewidth=2.2)
        axes.plot(part["estimate"], places[chosen], color=colour, marker=marker, linestyle="none", label=role)
    axes.set_yticks(places, rows["comparison"].tolist(), color=INK)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("NLL, heavy minus light (nats per token)")
    legend(figure, axes)
    return figure


def alt(tables: Tables) -> str:
    """Effects with intervals."""
    parts = [
        f"{row['role']} {row['comparison']}: {row['estimate']:+.4f} [{row['low']:+.4f}, {row['high']:+.4f}]"
        for row in tables["b_effects"].to_dict("records")
    ]
    return f"NLL of heavy minus light substitutions at equal mass, margin {margin(tables):.4f}. " + "; ".join(parts) + "."


FIGURE = Figure(
    name="b_effects",
    title="Few heavy against many light substitutions",
    order=150,
    needs=("b_effects", "b_plan"),
    caption=lambda tables: (
        "NLL of the heavy arm minus the light arm at equal substituted gate mass, mean over documents. Above zero few heavy substitutions cost more. Thin: "
        f"{level(tables['b_effects'])} interval over sources; thick: the interval that equivalence is judged by; grey: the margin delta. Secondary comparisons do not decide."
    ),
    alt=alt,
    draw=draw,
)
