"""The paper's claims, each with the verdict of its rule."""

from __future__ import annotations

from markupsafe import Markup

from expertmiss.report.base import Page, Section, render
from expertmiss.report.shown import Cell, ShownTable


def _render(page: Page) -> Markup:
    frame = page.tables["claims"]
    cells = [
        [
            Cell(str(row["claim"])), Cell(str(row["says"])), Cell(str(row["published"])), Cell(str(row["verdict"])), Cell(str(row["why"])),
            Cell(f"{row['documents']:,}" if row["documents"] else "–"),
        ]
        for row in frame.to_dict("records")
    ]  # fmt: skip
    title = "The paper's claims, judged by rules that were locked before their experiment touched evaluation text."
    table = page.export(ShownTable("claims", title, ["Claim", "Says", "Published", "Here", "Why", "n"], cells, frame), "claims")
    orders = [page.tables[name] for name in ("e1_orders", "e2_orders", "e4_orders", "e5_orders") if name in page.tables]
    reversals = [
        (row["claim"], row["statistic"], page.numbers.plain(("reversed", row["claim"], row["statistic"]), round(float(row["estimate"]), 3)),
         page.numbers.plain(("reversed", row["claim"], row["statistic"], "first"), int(row["first"])), int(row["documents"]))
        for frame in orders for row in frame.to_dict("records")
    ]  # fmt: skip
    return render("claims.html.j2", table=table, reversals=reversals, quick=page.cfg["report"]["quick"], substrate=page.labels.substrate)


SECTION = Section("claims", "Claims", 15, ("claims",), _render)
