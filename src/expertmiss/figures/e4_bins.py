"""E4: effect of background admission by distance from a change of topic or of document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.figure
import numpy as np
from matplotlib.layout_engine import ConstrainedLayoutEngine

from expertmiss.figures.base import Figure, Tables
from expertmiss.figures.style import BLUE, FOOT, INK, MUTED, VERMILION, WIDTH, legend, level

LOOKS = {"topic change": (VERMILION, "s"), "same-topic document change": (BLUE, "D")}
HEIGHT = 3.4


def span(row: Mapping[Any, Any]) -> str:
    """Words of a bin."""
    return f"{row['bin_from']}–{row['bin_to']}" if row["bin_to"] >= 0 else f"{row['bin_from']}+"


def draw(tables: Tables) -> matplotlib.figure.Figure:
    """One panel a base rule."""
    rows = tables["e4_bins"]
    families = list(dict.fromkeys(rows["family"]))
    figure = matplotlib.figure.Figure(
        figsize=(WIDTH, HEIGHT), layout=ConstrainedLayoutEngine(rect=(0.0, FOOT / HEIGHT, 1.0, 1 - FOOT / HEIGHT))
    )
    panels = figure.subplots(len(families), 1, sharex=True, squeeze=False)[:, 0]
    for axes, family in zip(panels, families, strict=True):
        for offset, (change, (colour, marker)) in zip((-0.1, 0.1), LOOKS.items(), strict=True):
            part = rows[(rows["family"] == family) & (rows["after"] == change)].sort_values("bin_from")
            places = np.arange(len(part)) + offset
            axes.vlines(places, part["low"], part["high"], color=colour, linewidth=1.2)
            axes.plot(places, part["estimate"], color=colour, marker=marker, linestyle="none", label=change)
            axes.set_xticks(np.arange(len(part)), [span(row) for row in part.to_dict("records")])
        axes.axhline(0, color=MUTED, linewidth=0.6)
        axes.set_title(family.split("/")[0], loc="left", color=INK)
    panels[-1].set_xlabel("Tokens after the change")
    figure.supylabel("Background minus fetched_only, nats per token", fontsize=7)
    legend(figure, panels[0])
    return figure


def alt(tables: Tables) -> str:
    """Effects by bin."""
    parts = [
        f"{row['family'].split('/')[0]}, {row['after']}, tokens {span(row)}: {row['estimate']:+.4f}"
        for row in tables["e4_bins"].to_dict("records") if row["after"] in LOOKS
    ]  # fmt: skip
    return "Effect of background admission on NLL by distance from a change. " + "; ".join(parts) + "."


FIGURE = Figure(
    name="e4_bins",
    title="Background admission after a change",
    order=140,
    needs=("e4_bins",),
    caption=lambda tables: (
        "NLL of background admission (half-life LFU, accumulated mass 0.5) minus fetched_only, by tokens since a topic change and, as a placebo, since a "
        f"document change within a topic. Below zero background admission helps. Bars: simultaneous {level(tables['e4_bins'])} band over the four bins, streams resampled."
    ),
    alt=alt,
    draw=draw,
)
