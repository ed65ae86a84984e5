"""Distribution of reuse distances by domain: shared by the figures in experts and in tokens."""

from __future__ import annotations

import matplotlib.figure
from matplotlib.ticker import NullLocator

from expertmiss.figures.base import Tables
from expertmiss.figures.style import canvas, domain_looks, legend, percent_axis
from expertmiss.stats.measures import ALL


def draw_reuse(tables: Tables, unit: str, label: str, log: bool) -> matplotlib.figure.Figure:
    """Share of reuses at most as far as x, one step line a domain, with interval bands."""
    table = tables["reuse"]
    table = table[(table["unit"] == unit) & (table["domain"] != ALL)]
    figure, axes = canvas()
    for name, look in domain_looks(table["domain"]).items():
        rows = table[table["domain"] == name].sort_values("distance")
        if log:
            rows = rows[rows["distance"] > 0]
        axes.fill_between(rows["distance"], rows["low"], rows["high"], step="post", color=look.colour, alpha=0.14, linewidth=0)
        axes.step(rows["distance"], rows["share"], where="post", color=look.colour, linestyle=look.dashes, label=name)
    if log:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(left=1 if log else 0, right=float(table["distance"].max()))
    axes.set_ylim(0, 1.02)
    percent_axis(axes.yaxis)
    axes.set_xlabel(label)
    axes.set_ylabel("Share of reuses at most this far")
    legend(figure, axes, columns=4)
    return figure


def spoken_reuse(tables: Tables, unit: str) -> str:
    """Median and 90 % distance of every domain, for alternative text."""
    table = tables["reuse"]
    table = table[(table["unit"] == unit) & (table["domain"] != ALL)]
    parts = []
    for name in sorted(set(table["domain"])):
        rows = table[table["domain"] == name].sort_values("distance")
        half, most = (int(rows.loc[rows["share"] >= level, "distance"].min()) for level in (0.5, 0.9))
        parts.append(f"{name} {half} and {most}")
    words = f"Cumulative distribution of reuse distance in {unit}, one line per domain. Distances that hold 50 % and 90 % of reuses: "
    return words + ", ".join(parts) + "."


def first_uses(tables: Tables) -> str:
    """How many requests have no reuse distance."""
    row = tables["reuse"].query("domain == @ALL").iloc[0]
    return (
        f"The first use of an expert in a document and layer has no distance and is left out "
        f"({100 * row['cold_share']:.1f} % [{100 * row['cold_low']:.1f}, {100 * row['cold_high']:.1f}] of requests)."
    )
