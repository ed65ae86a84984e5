"""What the routers ask for: gate weight by rank, and reuse distances."""

from __future__ import annotations

import pandas as pd
from markupsafe import Markup

from expertmiss.report.base import Page, Section, render
from expertmiss.report.shown import Cell, ShownTable, estimate_cell
from expertmiss.stats.measures import ALL

LEVELS = (0.5, 0.9, 0.99)


def _weights(table: pd.DataFrame) -> ShownTable:
    """Mean gate weight, domains down, ranks across."""
    rows = []
    for name in _domains(table):
        part = table[table["domain"] == name].sort_values("rank").to_dict("records")
        cells = [
            estimate_cell({**{str(key): value for key, value in row.items()}, "unit": "weight", "estimate": row["mean"]}) for row in part
        ]
        rows.append([Cell(str(name)), Cell(f"{part[0]['documents']:,}"), *cells])
    ranks = sorted(set(table["rank"]))
    return ShownTable(
        "gate_weight",
        "Mean gate weight by domain and router rank.",
        ["Domain", "Documents", *(f"Rank {rank}" for rank in ranks)],
        rows,
        table,
    )


def _reuse(table: pd.DataFrame) -> ShownTable:
    """Distances that hold a share of the reuses, domains down; first uses apart."""
    rows = []
    for name in _domains(table):
        part = table[table["domain"] == name]
        cells = [Cell(str(name)), Cell(f"{part['documents'].iloc[0]:,}")]
        for unit in ("experts", "tokens"):
            line = part[part["unit"] == unit].sort_values("distance")
            cells += [Cell(str(int(line.loc[line["share"] >= level, "distance"].min()))) for level in LEVELS]
        first = part.iloc[0]
        cold = {
            "unit": "share",
            "estimate": first["cold_share"],
            "low": first["cold_low"],
            "high": first["cold_high"],
            "reliable": first["reliable"],
        }
        rows.append([*cells, estimate_cell(cold)])
    heads = [f"{100 * level:g} %, {unit}" for unit in ("experts", "tokens") for level in LEVELS]
    title = "Reuse distance that holds a share of the reuses, in distinct other experts and in tokens, and share of first uses."
    return ShownTable("reuse", title, ["Domain", "Documents", *heads, "First uses"], rows, table)


def _domains(table: pd.DataFrame) -> list[str]:
    return [ALL, *sorted(set(table["domain"]) - {ALL})]


def _render(page: Page) -> Markup:
    tables = [page.export(_weights(page.tables["gate_weight"]), "gate_weight"), page.export(_reuse(page.tables["reuse"]), "reuse")]
    figures = [page.figures[name] for name in ("gate_weight", "reuse_experts", "reuse_tokens") if name in page.figures]
    few = bool((page.tables["gate_weight"]["reliable"] != "yes").any())
    return render("figures.html.j2", figures=figures, tables=tables, few=few)


SECTION = Section("routing", "Routing", 50, ("gate_weight", "reuse"), _render)
