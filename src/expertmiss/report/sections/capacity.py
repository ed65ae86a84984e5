"""Hit rate and substituted mass against capacity."""

from __future__ import annotations

from markupsafe import Markup

from expertmiss.report.base import Page, Section, render
from expertmiss.report.shown import by_capacity


def _render(page: Page) -> Markup:
    summary = page.tables["summary"]
    tables = [
        page.export(by_capacity("hit_rate_by_capacity", "Hit rate by policy and resident experts per layer.", summary, "hit_rate")),
        page.export(
            by_capacity(
                "mass_by_capacity", "Substituted gate mass per token-layer, by policy and resident experts per layer.", summary, "mean_mass"
            )
        ),
    ]
    figures = [page.figures[name] for name in ("hit_rate", "substituted_mass") if name in page.figures]
    return render("figures.html.j2", figures=figures, tables=tables, few=bool((summary["reliable"] != "yes").any()))


SECTION = Section("capacity", "Capacity", 40, ("summary",), _render)
