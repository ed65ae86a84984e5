"""E4: background admission, overall and after a topic change."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from markupsafe import Markup

from expertmiss.report.base import Page, Section, render
from expertmiss.report.experiments import gap_table, number, sample, statistics_table
from expertmiss.report.shown import Cell, ShownTable, estimate_cell


def _render(page: Page) -> Markup:
    effects, bins, statistics = page.tables["e4_effects"], page.tables["e4_bins"], page.tables["e4_statistics"]
    found = [
        (row["family"].split("/")[0], part, number(page, statistics, row["statistic"], "E4", signed=True),
         _p(page, row))
        for part in ("a", "b") for row in statistics[statistics["part"] == part].to_dict("records")
    ]  # fmt: skip
    tables = [
        page.export(statistics_table("e4_tests", "C4: (a) effect of background admission, (b) its concentration after topic changes; nats per token.", statistics, ("p", "p_rule", "p_holm")), "e4_statistics"),
        page.export(_effects(effects), "e4_effects"), page.export(_bins(bins), "e4_bins"), page.export(_reswaps(page.tables["e4_reswaps"]), "e4_reswaps"),
        page.export(gap_table("e4_gap", page.tables["e4_gap"]), "e4_gap"),
    ]  # fmt: skip
    figures = [page.figures[name] for name in ("e4_bins", "e4_betas") if name in page.figures]
    return render(
        "e4.html.j2", found=found, tables=tables, figures=figures, sample=sample(statistics, page.cfg["report"]["quick"]),
        unreliable=bool((statistics["reliable"] != "yes").any()),
    )  # fmt: skip


def _p(page: Page, row: dict[Any, Any]) -> str:
    """The part's own one-sided p, uncorrected; a dash where the sample has none."""
    return "–" if math.isnan(row["p"]) else page.numbers.plain(("E4", "p", row["statistic"]), float(f"{row['p']:.2g}"))


def _beta(row: dict[Any, Any]) -> str:
    words = "∞" if math.isinf(row["beta"]) else f"{row['beta']:g}"
    return words + (f", delay {row['delay']:g}" if row["arm"] == "delay" else "")


def _effects(frame: pd.DataFrame) -> ShownTable:
    cells = [
        [Cell(row["family"].replace("/", ", ")), Cell(_beta(row)), estimate_cell(row, signed=True)] for row in frame.to_dict("records")
    ]
    title = "Background admission minus fetched_only with the same rule and eviction: NLL, nats per token."
    return ShownTable("e4_effects", title, ["Rule, eviction", "beta", "Effect (nats)"], cells, frame)


def _bins(frame: pd.DataFrame) -> ShownTable:
    cells = []
    for (family, after), part in frame.groupby(["family", "after"], sort=False):
        cells.append(
            [
                Cell(f"{str(family).split('/')[0]}, {after}"),
                *(estimate_cell(row, signed=True) for row in part.sort_values("bin_from").to_dict("records")),
            ]
        )
    heads = [
        f"{row['bin_from']}–{row['bin_to']}" if row["bin_to"] >= 0 else f"{row['bin_from']}+" for row in frame.iloc[:4].to_dict("records")
    ]
    title = "The effect by tokens since a change (nats per token), with simultaneous bands; difference: topic change minus document change."
    return ShownTable("e4_bins", title, ["After", *heads], cells, frame)


def _reswaps(frame: pd.DataFrame) -> ShownTable:
    cells = [[Cell(row["policy"]), estimate_cell(row)] for row in frame.to_dict("records")]
    title = "Substitutions that repeat one of the same expert within 16 tokens, share of all substitutions."
    return ShownTable("e4_reswaps", title, ["Policy", "Repeated"], cells, frame)


SECTION = Section(
    "e4", "E4: background admission and topic changes", 46,
    ("e4_measures", "e4_effects", "e4_bins", "e4_reswaps", "e4_gap", "e4_statistics", "e4_orders"), _render,
)  # fmt: skip
