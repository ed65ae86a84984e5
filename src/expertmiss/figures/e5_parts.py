"""E5: what a token's time is made of, one bar a policy."""

from __future__ import annotations

import matplotlib.figure
import numpy as np
import pandas as pd

from expertmiss.figures.base import Figure, Tables
from expertmiss.figures.style import BLUE, GREEN, INK, ORANGE, VERMILION, canvas, legend, level, policy_order

PARTS = {"compute": (BLUE, "computing"), "waiting": (VERMILION, "waiting for experts"), "deciding": (ORANGE, "policy core"), "background": (GREEN, "background admissions")}  # fmt: skip


def table(times: pd.DataFrame) -> pd.DataFrame:
    """Milliseconds per token by policy (the paper's, in their order) and part."""
    own = times[times["arm"].isin(["reference", "paper"])]
    wide = own.pivot(index="policy", columns="measure", values="estimate")
    return wide.loc[policy_order(wide.index)]


def draw(tables: Tables) -> matplotlib.figure.Figure:
    """Stacked bars; the line at the end is the interval of the whole."""
    times = tables["e5_times"]
    rows = table(times)
    bounds = times[(times["measure"] == "wall") & times["arm"].isin(["reference", "paper"])].set_index("policy").loc[rows.index]
    figure, axes = canvas(0.9 + 0.3 * len(rows))
    places, left = np.arange(len(rows))[::-1], np.zeros(len(rows))
    for part, (colour, label) in PARTS.items():
        axes.barh(places, rows[part], left=left, height=0.62, color=colour, label=label)
        left += rows[part].to_numpy()
    axes.hlines(places, bounds["low"], bounds["high"], color=INK, linewidth=0.9)
    axes.set_yticks(places, rows.index)
    axes.set_xlabel("Time per token (ms)")
    legend(figure, axes, columns=2)
    return figure


FIGURE = Figure(
    name="e5_parts",
    title="Where a token's time goes",
    order=161,
    needs=("e5_times",),
    caption=lambda tables: (
        "Time per token on the engine, at the claims' capacity, split by what the decoding thread does: the model, waiting for experts that the token needs, the "
        f"policy core, and admissions. Lines: {level(tables['e5_times'])} intervals of the whole over (stream, repeat) pairs."
    ),
    alt=lambda tables: "Milliseconds per token. " + "; ".join(
        f"{name}: " + ", ".join(f"{label} {row[part]:.3f}" for part, (_, label) in PARTS.items()) for name, row in table(tables["e5_times"]).iterrows()
    ) + ".",
    draw=draw,
)  # fmt: skip
