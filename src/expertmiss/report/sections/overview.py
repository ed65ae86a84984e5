"""What the page is about, and what it was computed from."""

from __future__ import annotations

from markupsafe import Markup

from expertmiss.report.base import Page, Section, render
from expertmiss.report.facts import Facts


def _render(page: Page) -> Markup:
    facts, numbers = Facts(page), page.numbers
    geometry = page.tables["gate_weight"].iloc[0]
    counts = {name: numbers.plain((name,), int(geometry[name])) for name in ("layers", "experts", "top_k")}
    sample = {unit: numbers.plain(("n", unit), count) for unit, count in page.table_labels["summary"].n.items()}
    policies = numbers.plain(("policies",), int(page.tables["summary"]["policy"].nunique()))
    capacities = numbers.plain(("capacities",), int(page.tables["summary"]["capacity"].nunique()))
    headline = {
        "capacity": numbers.plain(("capacity",), facts.capacity),
        "share": numbers.plain(("residency", "percent"), 100 * facts.residency),
    }
    return render(
        "overview.html.j2", model=page.cfg["model"], corpus=page.cfg["corpus"]["name"], split=str(geometry["split"]), counts=counts, sample=sample,
        policies=policies, capacities=capacities, headline=headline,
    )  # fmt: skip


SECTION = Section("overview", "What this is", 10, ("summary", "gate_weight"), _render)
