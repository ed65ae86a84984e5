"""E5: time per token against perplexity of the same run, one point a policy, with the front of those that no other beats in both."""

from __future__ import annotations

import matplotlib.figure
import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter

from expertmiss.figures.base import Figure, Tables
from expertmiss.figures.style import MUTED, canvas, legend, level, policy_look, policy_order


def points(tables: Tables) -> pd.DataFrame:
    """One row a policy at the claims' capacity: arm, milliseconds per token, perplexity change, bounds of both."""
    times, losses = tables["e5_times"], tables["e5_measures"]
    names = ["policy", "arm", "estimate", "low", "high"]
    wall = times.loc[(times["measure"] == "wall") & (times["arm"] != "cell"), names]
    change = losses.loc[losses["measure"] == "perplexity_change", names]
    return wall.merge(change, on=["policy", "arm"], suffixes=("_ms", "_loss"))


def front(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows that no other row beats in time and loss, from the fastest on."""
    ordered = rows.sort_values(["estimate_ms", "estimate_loss"])
    best = np.minimum.accumulate(ordered["estimate_loss"].to_numpy())
    first = np.append(True, best[1:] < best[:-1]) if len(ordered) else np.zeros(0, bool)
    return ordered[first]


def draw(tables: Tables) -> matplotlib.figure.Figure:
    """The paper's policies in their looks, C2's in grey; a stepped line joins the front."""
    rows = points(tables)
    figure, axes = canvas()
    edge = front(rows)
    axes.plot(edge["estimate_ms"], edge["estimate_loss"], color=MUTED, linewidth=0.8, drawstyle="steps-post", zorder=1)
    paper = rows[rows["arm"] != "protected"]
    for name in policy_order(paper["policy"]):
        row, look = paper[paper["policy"] == name].iloc[0], policy_look(name, paper["policy"])
        axes.plot([row["low_ms"], row["high_ms"]], [row["estimate_loss"]] * 2, color=look.colour, linewidth=0.8)
        axes.vlines(row["estimate_ms"], row["low_loss"], row["high_loss"], color=look.colour, linewidth=0.8)
        axes.plot(
            row["estimate_ms"], row["estimate_loss"], color=look.colour, marker=look.marker, markersize=4.5, linestyle="none", label=name
        )
    other = rows[rows["arm"] == "protected"]
    axes.plot(
        other["estimate_ms"],
        other["estimate_loss"],
        color=MUTED,
        marker="o",
        markerfacecolor="none",
        linestyle="none",
        label="C2's policies",
    )
    axes.set_yscale("symlog", linthresh=0.01)
    axes.set_xlabel("Time per token (ms)")
    axes.set_ylabel("Perplexity change against fetch_all")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    legend(figure, axes)
    return figure


FIGURE = Figure(
    name="e5_front",
    title="Time against perplexity",
    order=160,
    needs=("e5_times", "e5_measures"),
    caption=lambda tables: (
        "Time per token and perplexity change of the same run on the engine, one point a policy at the claims' capacity. The stepped line joins the policies "
        f"that no other beats in both. Linear below 1 %, logarithmic above. Bars: {level(tables['e5_times'])} intervals, time over (stream, repeat) pairs, "
        "perplexity over sources."
    ),
    alt=lambda tables: "Time per token against perplexity change. " + "; ".join(
        f"{row['policy']}: {row['estimate_ms']:.3f} ms, {100 * row['estimate_loss']:+.2f} %" for row in points(tables).to_dict("records")
    ) + ".",
    draw=draw,
)  # fmt: skip
