"""What a section of the report is, what it may use, and how the files of ``sections/`` are found.

How to add one: write ``sections/<name>.py`` that defines ``SECTION`` and a template ``templates/<name>.html.j2``; name the statistics
tables it needs. A report shows every section whose tables are there, so another experiment's section stays out of this one's page.
Every number in its text comes from a table, through ``page.numbers``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from expertmiss.provenance import Labels
from expertmiss.report.numbers import Numbers
from expertmiss.report.shown import ShownTable


@dataclass
class Page:
    """What sections draw from, and what they leave for export.

    Attributes:
        cfg: slice of the configuration.
        experiment: its name.
        tables: statistics tables by name.
        labels: what all numbers of the page may be called; its sample is the smallest of the tables'.
        table_labels: the same of every table, with its own sample.
        figures: descriptions of the figures (``<figure>.json``) by name, with ``svg`` for inlining.
        runs: ``run.json`` of the stages behind the page.
        numbers: formats the numbers of the text and records them for ``numbers.tex``.
        exports: tables for ``tables/``, in the order of the page.
        added: other hosts whose ``e5_statistics/<host>`` are among the tables.
    """

    cfg: Mapping[str, Any]
    experiment: str
    tables: Mapping[str, pd.DataFrame]
    labels: Labels
    table_labels: Mapping[str, Labels]
    figures: Mapping[str, Mapping[str, Any]]
    runs: list[Mapping[str, Any]]
    numbers: Numbers = field(default_factory=Numbers)
    exports: list[ShownTable] = field(default_factory=list)
    added: list[str] = field(default_factory=list)

    def export(self, table: ShownTable, source: str = "summary") -> ShownTable:
        """Record ``table`` for ``tables/``, with the labels of the statistics table ``source``, and return it for the page."""
        self.exports.append(replace(table, source=source))
        return self.exports[-1]

    def sample(self) -> str:
        """The small words behind every claim about routing: the simulator's sample size, and ``quick run``."""
        counts = [f"{count:,} {unit}" for unit, count in self.table_labels["summary"].n.items() if unit != "tokens"]
        return "n = " + ", ".join(counts) + ("; quick run" if "quick run" in self.labels.notes else "")


@dataclass(frozen=True)
class Section:
    """``render(page)`` gives the section's body; ``name`` is its anchor, ``order`` its place."""

    name: str
    title: str
    order: int
    needs: tuple[str, ...]
    render: Callable[[Page], Markup]


def sections() -> list[Section]:
    """Every ``SECTION`` of ``sections/``, in order."""
    package = importlib.import_module("expertmiss.report.sections")
    found = [importlib.import_module(f"expertmiss.report.sections.{item.name}").SECTION for item in pkgutil.iter_modules(package.__path__)]
    return sorted(found, key=lambda section: (section.order, section.name))


def render(template: str, **values: Any) -> Markup:
    """A template of this package, filled; an unknown name in it is an error, and text is escaped."""
    environment = Environment(
        loader=PackageLoader("expertmiss.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return Markup(environment.get_template(template).render(**values))
