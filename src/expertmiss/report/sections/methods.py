"""Definitions in short, how intervals are made, and what is not claimed."""

from __future__ import annotations

from markupsafe import Markup

from expertmiss.report.base import Page, Section, render
from expertmiss.stats.measures import MEASURES


def _render(page: Page) -> Markup:
    warm = all(policy.get("initial", "warm") == "warm" for policy in page.cfg["policies"].values())
    open_loop = any("open loop" in note for note in page.labels.notes)
    return render(
        "methods.html.j2",
        measures=list(MEASURES.values()),
        stats=page.cfg["stats"],
        labels=page.labels,
        model=page.cfg["model"],
        warm=warm,
        open_loop=open_loop,
    )


SECTION = Section("methods", "Methods and limits", 80, ("summary",), _render)
