"""Gate weight by router rank: how unequal the K chosen experts are."""

from __future__ import annotations

import matplotlib.figure
import numpy as np

from expertmiss.figures.base import Figure, Tables
from expertmiss.figures.style import BLUE, MUTED, canvas, domain_looks, legend, level
from expertmiss.stats.measures import ALL, HEAVY


def draw(tables: Tables) -> matplotlib.figure.Figure:
    """Bars hold 50 and 80 % of the token-layers of all domains; marks are the domains' means with their intervals."""
    table = tables["gate_weight"]
    overall = table[table["domain"] == ALL].sort_values("rank")
    rank = overall["rank"].to_numpy()
    figure, axes = canvas()
    axes.bar(
        rank,
        overall["q90"] - overall["q10"],
        bottom=overall["q10"],
        width=0.74,
        color=BLUE,
        alpha=0.13,
        linewidth=0,
        label="80 % of token-layers",
    )
    axes.bar(
        rank, overall["q75"] - overall["q25"], bottom=overall["q25"], width=0.74, color=BLUE, alpha=0.22, linewidth=0, label="50 % of them"
    )
    axes.hlines(overall["q50"], rank - 0.37, rank + 0.37, color=BLUE, linewidth=1.0, label="median")
    looks = domain_looks(set(table["domain"]) - {ALL})
    for place, (name, look) in enumerate(looks.items()):
        rows = table[table["domain"] == name].sort_values("rank")
        shift = 0.5 * (place - (len(looks) - 1) / 2) / max(len(looks), 1)
        spread = np.abs(rows[["low", "high"]].to_numpy().T - rows["mean"].to_numpy())
        axes.errorbar(
            rank + shift,
            rows["mean"],
            spread,
            color=look.colour,
            marker=look.marker,
            markersize=2.6,
            linestyle="none",
            elinewidth=0.8,
            label=name,
        )
    axes.axhline(HEAVY, color=MUTED, linewidth=0.7, linestyle=(0, (4, 2)))
    axes.annotate(
        f"{HEAVY:g}",
        (1, HEAVY),
        xycoords=("axes fraction", "data"),
        xytext=(-2, 2),
        textcoords="offset points",
        ha="right",
        fontsize=5.8,
        color=MUTED,
    )
    axes.set_xticks(rank)
    axes.grid(False, axis="x")
    axes.set_xlabel("Router rank (0 is the first choice)")
    axes.set_ylabel("Gate weight w (sums to 1 over ranks)")
    axes.set_ylim(bottom=0)
    legend(figure, axes)
    return figure


def alt(tables: Tables) -> str:
    """Means over all domains, by rank."""
    overall = tables["gate_weight"].query("domain == @ALL").sort_values("rank")
    means = ", ".join(f"rank {rank}: {mean:.3f}" for rank, mean in zip(overall["rank"], overall["mean"], strict=True))
    return f"Bar chart of gate weight by router rank, with means by domain. Means over all domains: {means}."


FIGURE = Figure(
    name="gate_weight",
    title="Gate weight by router rank",
    order=30,
    needs=("gate_weight",),
    caption=lambda tables: (
        "Gate weight of the K experts that the router chose, by rank, over all token-layers. Marks are means by domain with "
        f"{level(tables['gate_weight'])} intervals over sources; the dashed line is the weight from which the 0.15 rule waits."
    ),
    alt=alt,
    draw=draw,
)
