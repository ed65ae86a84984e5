"""E1: which substitutions cost quality."""

from __future__ import annotations

from markupsafe import Markup

from expertmiss.figures.panels import headline
from expertmiss.report.base import Page, Section, render
from expertmiss.report.experiments import gap_table, number, policy_table, sample
from expertmiss.report.experiments import loss_cell as cell
from expertmiss.report.shown import Cell, ShownTable

MEASURES = ("perplexity_change", "substituted_share", "mean_mass", "fetched_share", "hit_rate")


def _render(page: Page) -> Markup:
    measures, statistics, choosers = page.tables["e1_measures"], page.tables["e1_statistics"], page.tables["e1_choosers"]
    names = ("loss of the 0.15 rule", "loss of substitute_all", "loss spared", "calls spared", "loss spared minus calls spared")
    numbers = {name: number(page, statistics, name, "E1", signed="minus" in name) for name in names}
    tables = []
    for capacity in sorted(measures["capacity"].unique()):
        rows = measures[(measures["capacity"] == capacity) & measures["arm"].isin(["grid", "reference"])]
        share = 100 * rows["residency"].iloc[0]
        title = f"E1 at C = {capacity} resident experts per layer ({share:.3g} %): LRU, every miss admitted, router_rank, own weights."
        tables.append(page.export(policy_table(f"e1_c{capacity}", title, rows, MEASURES), "e1_measures"))
    if len(choosers):
        cells = [[Cell(row["policy"]), Cell(row["base"]), Cell(str(row["seeds"])), cell(row)] for row in choosers.to_dict("records")]
        title = "Other choosers and weight conventions: perplexity relative to router_rank with own weights, same miss rule and capacity."
        tables.append(
            page.export(
                ShownTable("e1_choosers", title, ["Policy", "Against", "Seeds", "Perplexity change (%)"], cells, choosers), "e1_choosers"
            )
        )
    tables.append(page.export(gap_table("e1_gap", page.tables["e1_gap"]), "e1_gap"))
    figures = [page.figures[name] for name in ("e1_loss", "e1_split") if name in page.figures]
    return render(
        "e1.html.j2", capacity=headline(measures), numbers=numbers, tables=tables, figures=figures, sample=sample(statistics, page.cfg["report"]["quick"]),
        few=bool(measures["few_residents"].any()), unreliable=bool((statistics["reliable"] != "yes").any()),
    )  # fmt: skip


SECTION = Section(
    "e1",
    "E1: which substitutions cost quality",
    42,
    ("e1_measures", "e1_split", "e1_choosers", "e1_gap", "e1_statistics", "e1_orders"),
    _render,
)
