"""Single substitutions: rank and gate weight apart."""

from __future__ import annotations

import pandas as pd
from markupsafe import Markup

from expertmiss.report.base import Page, Section, render
from expertmiss.report.shown import Cell, ShownTable, estimate_cell


def _render(page: Page) -> Markup:
    model, cells, weights = (page.tables[name] for name in ("b_site_model", "b_site_cells", "b_site_overlap"))
    found = [
        (row["meaning"], page.numbers.estimate(("B", "site", str(row["term"])), {str(name): value for name, value in row.items()}, "nats", signed=True))
        for row in model.to_dict("records")
    ]  # fmt: skip
    tables = [
        page.export(_model(model), "b_site_model"),
        page.export(_cells(cells), "b_site_cells"),
        page.export(_overlap(weights), "b_site_overlap"),
    ]
    figures = [page.figures[name] for name in ("b_sites",) if name in page.figures]
    return render(
        "b_sites.html.j2", found=found, tables=tables, figures=figures, sites=int(model["sites"].iloc[0]), documents=int(model["documents"].iloc[0]),
        common=page.numbers.plain(("B", "site", "common"), float(f"{100 * weights['common'].min():.3g}")),
        unreliable=bool((model["reliable"] != "yes").any()),
    )  # fmt: skip


def _model(frame: pd.DataFrame) -> ShownTable:
    cells = [
        [Cell(row["meaning"]), estimate_cell(row, signed=True), Cell(f"{row['p']:.2g}"), Cell(f"{row['vif']:.2g}")]
        for row in frame.to_dict("records")
    ]
    title = "Regression of the loss over 32 targets (nats) on rank, weight and logit gap, layers apart, errors clustered by document; variance inflation of each term."
    return ShownTable("b_site_model", title, ["Term", "Coefficient", "p", "Inflation"], cells, frame)


def _cells(frame: pd.DataFrame) -> ShownTable:
    bins = frame[["weight_from", "weight_to"]].drop_duplicates().sort_values("weight_from").to_dict("records")
    cells = []
    for rank, part in frame.groupby("rank"):
        found = {row["weight_from"]: row for row in part.to_dict("records")}
        line = [Cell(f"rank {rank}")]
        for span in bins:
            row = found.get(span["weight_from"])
            line.append(Cell("–") if row is None or pd.isna(row["estimate"]) else estimate_cell(row, signed=True))
        cells.append(line)
    title = "Loss over 32 targets (nats) by rank and gate weight; cells of fewer than 30 sites are refused (–)."
    return ShownTable("b_site_cells", title, ["Rank", *(f"w {span['weight_from']:g}–{span['weight_to']:g}" for span in bins)], cells, frame)


def _overlap(frame: pd.DataFrame) -> ShownTable:
    names = [name for name in frame if str(name).startswith("q")]
    cells = [
        [Cell(f"rank {int(row['rank'])}"), *(Cell(f"{row[name]:.3f}") for name in names), Cell(f"{int(row['sites'])}"), Cell(f"{100 * row['common']:.0f} %")]
        for row in frame.to_dict("records")
    ]  # fmt: skip
    title = "Gate weight by rank (quantiles), sites, and the share of sites whose weight lies where every rank has some."
    return ShownTable("b_site_overlap", title, ["Rank", *(f"{int(str(name)[1:])} %" for name in names), "Sites", "Common"], cells, frame)


SECTION = Section("b_sites", "Rank and weight apart: single substitutions", 48, ("b_site_model", "b_site_cells", "b_site_overlap"), _render)
