"""Experiment B: realised against target mass of every document (manipulation check)."""

from __future__ import annotations

import matplotlib.figure
import pandas as pd

from expertmiss.figures.base import Figure, Tables
from expertmiss.figures.style import GREEN, MUTED, VERMILION, canvas, legend, percent_axis


def shares(tables: Tables) -> pd.DataFrame:
    """The primary comparison's documents with realised over target mass of both arms."""
    effects, rows = tables["b_effects"], tables["b_pairs"]
    primary = effects[effects["role"] == "primary"].iloc[0]
    part: pd.DataFrame = rows[(rows["kind"] == primary["kind"]) & (rows["level"] == primary["level"])]
    return part.assign(heavy=part["mass_heavy"] / part["mu"], light=part["mass_light"] / part["mu"])


def draw(tables: Tables) -> matplotlib.figure.Figure:
    """Heavy across, light up; documents that fail the check stand out."""
    rows, plan = shares(tables), tables["b_plan"].set_index("name")["value"]
    figure, axes = canvas()
    tolerance = float(plan["mass_tolerance"])
    axes.axvspan(1 - tolerance, 1 + tolerance, color=MUTED, alpha=0.1, linewidth=0)
    axes.axhspan(1 - tolerance, 1 + tolerance, color=MUTED, alpha=0.1, linewidth=0)
    for passed, colour, marker, words in ((True, GREEN, "o", "passes"), (False, VERMILION, "X", "fails")):
        part = rows[rows["passed"] == passed]
        axes.plot(part["heavy"], part["light"], color=colour, marker=marker, linestyle="none", alpha=0.7, label=f"{words} ({len(part)})")
    axes.set_xlabel("Realised over target mass, heavy arm")
    axes.set_ylabel("Realised over target mass, light arm")
    percent_axis(axes.xaxis)
    percent_axis(axes.yaxis)
    legend(figure, axes)
    return figure


def alt(tables: Tables) -> str:
    """Ranges and the share that passes."""
    rows = shares(tables)
    spans = [f"{name} {100 * rows[name].min():.1f} to {100 * rows[name].max():.1f} %" for name in ("heavy", "light")]
    return f"Realised over target substituted mass by document: {', '.join(spans)}; {100 * rows['passed'].mean():.0f} % of {len(rows)} documents pass the check."


FIGURE = Figure(
    name="b_mass",
    title="Manipulation check",
    order=152,
    needs=("b_effects", "b_pairs", "b_plan"),
    caption=lambda tables: (
        "Realised over target substituted mass of every document at the primary level. Grey: the tolerance of each arm; a document passes if both arms lie within it "
        "and near each other."
    ),
    alt=alt,
    draw=draw,
)
