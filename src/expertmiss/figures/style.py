"""The look of every figure: sizes of a paper's column, colours that colour-blind readers can tell apart, one look per policy.

Colours are Okabe and Ito's (2008) with yellow and sky blue darkened until they carry on white. Colour never stands alone: each
policy also has its marker and dashes, and lines stand in the legend in the order of :data:`POLICY_LOOKS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import matplotlib.axes
import matplotlib.figure
import pandas as pd
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter

WIDTH, HEIGHT = 3.5, 2.8  # inches: one column of a two-column paper
FOOT = 0.3  # inches kept below the axes for three lines of labels
LINE = 0.09  # inches of a further line
INK, MUTED, GRID, PAPER = "#1b1f24", "#59636e", "#d8dee4", "#ffffff"

BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, OLIVE = "#0072b2", "#d55e00", "#009e73", "#c98500", "#b3589a", "#3a93c9", "#8a7a00"

RC: dict[str, Any] = {
    "font.family": "DejaVu Sans", "font.size": 7.0, "axes.labelsize": 7.0, "axes.titlesize": 7.5, "legend.fontsize": 6.3,
    "xtick.labelsize": 6.3, "ytick.labelsize": 6.3, "text.color": INK, "axes.labelcolor": INK, "xtick.color": MUTED, "ytick.color": MUTED,
    "axes.edgecolor": MUTED, "axes.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "axes.axisbelow": True, "grid.color": GRID, "grid.linewidth": 0.5, "xtick.major.width": 0.6, "ytick.major.width": 0.6,
    "lines.linewidth": 1.2, "lines.markersize": 3.6, "legend.frameon": False, "figure.facecolor": PAPER, "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER, "savefig.dpi": 300, "pdf.fonttype": 42, "svg.fonttype": "path", "axes.unicode_minus": False,
}  # fmt: skip


class Look(NamedTuple):
    """How a line is drawn."""

    colour: str
    marker: str
    dashes: Any


SERIES = tuple(zip((BLUE, VERMILION, GREEN, PURPLE, ORANGE, OLIVE), ("s", "X", "D", "v", "^", "P"), strict=True))
"""Colour and marker of lines that are not policies: capacities, families of rules."""


POLICY_LOOKS: dict[str, Look] = {
    "fetch_all": Look(INK, "o", "-"),
    "rule_015": Look(BLUE, "s", "-"),
    "quality_first": Look(GREEN, "D", "-"),
    "first_choice": Look(ORANGE, "^", "-"),
    "speed_first": Look(PURPLE, "v", "-"),
    "substitute_all": Look(VERMILION, "X", "-"),
}
_FURTHER = [
    Look(colour, marker, dashes)
    for dashes in ((0, (4, 1.4)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2)))
    for colour, marker in ((SKY, "P"), (OLIVE, "<"), (VERMILION, ">"), (GREEN, "h"), (PURPLE, "p"), (BLUE, "*"))
]


def policy_order(policies: Iterable[str]) -> list[str]:
    """The paper's policies in their fixed order, then all others by name."""
    known = list(POLICY_LOOKS)
    return sorted(set(policies), key=lambda name: (known.index(name) if name in known else len(known), name))


def policy_look(policy: str, policies: Iterable[str]) -> Look:
    """The policy's own look; one outside the paper's six takes the next free one, by name."""
    if policy in POLICY_LOOKS:
        return POLICY_LOOKS[policy]
    others = [name for name in policy_order(policies) if name not in POLICY_LOOKS]
    return _FURTHER[others.index(policy) % len(_FURTHER)]


def domain_looks(domains: Iterable[str]) -> dict[str, Look]:
    """Looks of text domains, by name; apart from the policies' in dashes."""
    colours = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, OLIVE, INK)
    dashes = ("-", (0, (4, 1.4)), (0, (1.2, 1.2)))
    markers = ("o", "s", "^", "D", "v", "P", "X", "<")
    return {
        name: Look(colours[index % 8], markers[index % 8], dashes[(index + index // 8) % 3]) for index, name in enumerate(sorted(set(domains)))
    }  # fmt: skip


def canvas(height: float = HEIGHT) -> tuple[matplotlib.figure.Figure, matplotlib.axes.Axes]:
    """A one-column figure with one pair of axes; the strip below is kept for :func:`sign`."""
    figure = matplotlib.figure.Figure(
        figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(rect=(0.0, FOOT / height, 1.0, 1 - FOOT / height))
    )
    return figure, figure.add_subplot()


def legend(figure: matplotlib.figure.Figure, axes: matplotlib.axes.Axes, columns: int = 3) -> None:
    """The legend above the axes, in drawing order."""
    handles, names = axes.get_legend_handles_labels()
    figure.legend(
        handles, names, loc="outside upper center", ncols=min(columns, len(names)), handlelength=2.2, columnspacing=1.2, labelspacing=0.35
    )


def sign(figure: matplotlib.figure.Figure, line: str) -> None:
    """The small lines at the foot: sample size and labels. Where they need more than :data:`FOOT` the figure grows, its axes do not shrink."""
    words, rows = line.split(" · "), [""]
    for word in words:
        longer = f"{rows[-1]} · {word}" if rows[-1] else word
        rows = [*rows[:-1], longer] if len(longer) <= 92 else [*rows, word]
    foot = FOOT + LINE * max(len(rows) - 3, 0)
    if foot > FOOT:
        height = figure.get_figheight() + foot - FOOT
        figure.set_figheight(height)
        figure.set_layout_engine(ConstrainedLayoutEngine(rect=(0.0, foot / height, 1.0, 1 - foot / height)))
    figure.text(0.5, 0.012, "\n".join(rows), ha="center", va="bottom", fontsize=4.9, color=MUTED, linespacing=1.25)


def level(table: pd.DataFrame) -> str:
    """Coverage of a table's intervals, in words."""
    return f"{100 * table['confidence'].iloc[0]:g}\u00a0%"


def percent_axis(axis: Any, digits: int = 0) -> None:
    """Shares as percent."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.{digits}f} %"))
