"""Tables as they are shown: the same cells for the page, LaTeX and Markdown, and the numbers behind them as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from expertmiss.figures.style import policy_order
from expertmiss.files import sha256_file, write_json, write_text
from expertmiss.provenance import Labels
from expertmiss.report.numbers import SPACE, digits_for, latex_text, show, show_interval
from expertmiss.stats.measures import MEASURES
from expertmiss.stats.tables import label_line

FORMATS = ("csv", "tex", "md")


class Cell(NamedTuple):
    """A number and, below it on the page, its interval."""

    text: str
    interval: str = ""

    def joined(self) -> str:
        """Both in one line."""
        return f"{self.text} {self.interval}".strip()


@dataclass(frozen=True)
class ShownTable:
    """Header, rows of cells (the first names the row), and ``data`` with the numbers in full.

    ``title`` is the caption; ``source`` names the statistics table whose labels and sample it carries.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    data: pd.DataFrame
    source: str = "summary"

    def frame(self) -> pd.DataFrame:
        """The cells as text."""
        return pd.DataFrame([[cell.joined() for cell in row] for row in self.rows], columns=list(self.columns))


def estimate_cell(row: Mapping[Any, Any], signed: bool = False) -> Cell:
    """Cell of a statistics row (``unit``, ``estimate``, ``low``, ``high``, ``reliable``); a dagger marks too few clusters."""
    value, low, high = float(row["estimate"]), float(row["low"]), float(row["high"])
    digits = digits_for(row["unit"], value, low, high)
    text = show(row["unit"], value, digits, signed).removesuffix(f"{SPACE}points")
    return Cell(text + ("" if row["reliable"] == "yes" else " †"), show_interval(row["unit"], low, high, digits, signed))


def by_measure(name: str, title: str, rows: pd.DataFrame, measures: Sequence[str], signed: bool = False) -> ShownTable:
    """Policies down, measures across, from the statistics rows of one capacity."""
    chosen = rows[rows["measure"].isin(measures)]
    found = {(row["policy"], row["measure"]): row for row in chosen.to_dict("records")}
    policies = policy_order(chosen["policy"])
    cells = [[Cell(policy), *(estimate_cell(found[policy, measure], signed) for measure in measures)] for policy in policies]
    return ShownTable(name, title, ["Policy", *(_head(measure, signed) for measure in measures)], cells, chosen)


def by_capacity(name: str, title: str, rows: pd.DataFrame, measure: str) -> ShownTable:
    """Policies down, capacities across, for one measure."""
    chosen = rows[rows["measure"] == measure]
    found = {(row["policy"], row["capacity"]): row for row in chosen.to_dict("records")}
    capacities = sorted(set(chosen["capacity"]))
    cells = [
        [Cell(policy), *(estimate_cell(found[policy, capacity]) if (policy, capacity) in found else Cell("–") for capacity in capacities)]
        for policy in policy_order(chosen["policy"])
    ]
    return ShownTable(name, title, ["Policy", *(f"C = {capacity}" for capacity in capacities)], cells, chosen)


def _head(measure: str, signed: bool) -> str:
    unit = {"share": "points" if signed else "", "nats": "nats"}.get(MEASURES[measure].unit, "")
    return MEASURES[measure].title + (f" ({unit})" if unit else "")


def write_shown(table: ShownTable, labels: Labels, sources: Mapping[str, str], folder: Path) -> list[Path]:
    """Write ``folder/{csv,tex,md}/<name>.*`` and ``folder/<name>.json`` with labels, sources and digests; returns the paths."""
    frame, line = table.frame(), label_line(labels)
    latex = frame.rename(columns=latex_text).map(latex_text).to_latex(
        index=False, column_format="l" + "r" * (len(table.columns) - 1), caption=latex_text(table.title), position="t",
        label=f"tab:{table.name}",
    )  # fmt: skip
    texts = {
        "csv": table.data.to_csv(index=False, lineterminator="\n"),
        "tex": f"% {line}\n{latex}",
        "md": f"{table.title}\n\n{frame.to_markdown(index=False)}\n\n{line}\n",
    }
    paths = []
    for kind, text in texts.items():
        path = folder / kind / f"{table.name}.{kind}"
        write_text(path, text)
        paths.append(path)
    description = {
        "table": table.name, "title": table.title, "labels": asdict(labels), "label_line": line, "sources": dict(sources),
        "files": {path.relative_to(folder).as_posix(): sha256_file(path) for path in paths},
    }  # fmt: skip
    write_json(folder / f"{table.name}.json", description)
    return [*paths, folder / f"{table.name}.json"]
