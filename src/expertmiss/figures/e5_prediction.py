"""E5: predicted against measured time per token, one point a policy and capacity."""

from __future__ import annotations

import matplotlib.figure
import numpy as np

from expertmiss.figures.base import Figure, Tables
from expertmiss.figures.style import MUTED, SERIES, canvas, legend


def draw(tables: Tables) -> matplotlib.figure.Figure:
    """Hollow: cells that the factors were fitted on; the band is the target around the diagonal."""
    rows = tables["e5_prediction"]
    figure, axes = canvas()
    values = rows[["measured", "fitted"]].to_numpy(np.float64)
    ends = np.array([0.9 * values.min(), 1.1 * values.max()])
    target = float(rows["target"].iloc[0])
    axes.fill_between(ends, (1 - target) * ends, (1 + target) * ends, color=MUTED, alpha=0.14, linewidth=0)
    axes.plot(ends, ends, color=MUTED, linewidth=0.6)
    for place, (capacity, part) in enumerate(rows.groupby("capacity")):
        colour, marker = SERIES[place % len(SERIES)]
        for role, face in (("fit", "none"), ("held out", colour)):
            own = part[part["role"] == role]
            label = f"C = {capacity}" if role == "held out" else None
            axes.plot(own["measured"], own["fitted"], color=colour, marker=marker, markerfacecolor=face, linestyle="none", label=label)
    axes.set_xlabel("Measured time per token (ms)")
    axes.set_ylabel("Predicted (ms)")
    legend(figure, axes)
    return figure


FIGURE = Figure(
    name="e5_prediction",
    title="Predicted against measured time",
    order=162,
    needs=("e5_prediction",),
    caption=lambda tables: (
        "Time per token that the time model expects, against the engine's, one point a policy of the paper and capacity. Hollow: policies that its two factors were "
        f"fitted on; filled: held out, median error {100 * tables['e5_prediction']['median_error_fitted'].iloc[0]:.1f} %. Band: the target of "
        f"{100 * tables['e5_prediction']['target'].iloc[0]:g} %."
    ),
    alt=lambda tables: "Predicted against measured milliseconds per token. " + "; ".join(
        f"{row['policy']} at C = {row['capacity']}: {row['measured']:.3f} measured, {row['fitted']:.3f} predicted"
        for row in tables["e5_prediction"].to_dict("records")
    ) + ".",
    draw=draw,
)  # fmt: skip
