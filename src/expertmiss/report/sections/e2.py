"""E2: whether substituted mass orders policies and inputs by loss."""

from __future__ import annotations

from markupsafe import Markup

from expertmiss.report.base import Page, Section, render
from expertmiss.report.experiments import gap_table, number, policy_table, sample, statistics_table

MEASURES = ("perplexity_change", "mean_mass", "substituted_share", "fetched_share", "hit_rate")


def _render(page: Page) -> Markup:
    measures, statistics = page.tables["e2_measures"], page.tables["e2_statistics"]
    names = ("r of mass", "r of share of calls", "r of mass minus |r| of share of calls", "rho of inputs, mean of policies")
    numbers = {name: number(page, statistics[statistics["claim"] != "C2b"], name, "E2") for name in names}
    numbers["unprotected"] = number(page, statistics[statistics["claim"] == "C2b"], "r of mass", "E2", "unprotected")
    tables = []
    for arm, words in (("protected", "always execute the first choice"), ("unprotected", "may replace the first choice")):
        title = f"E2: policies that {words}, C = {measures['capacity'].iloc[0]}."
        tables.append(page.export(policy_table(f"e2_{arm}", title, measures[measures["arm"] == arm], MEASURES), "e2_measures"))
    rows = statistics[statistics["claim"] != "C2a"]
    tables.append(
        page.export(
            statistics_table(
                "e2_correlations", "Pearson correlations over policies; documents resampled, never policies.", rows, ("policies",)
            ),
            "e2_statistics",
        )
    )
    rows = statistics[statistics["claim"] == "C2a"]
    tables.append(
        page.export(
            statistics_table("e2_inputs", "Rank correlations of a document's mass and loss, within domains.", rows), "e2_statistics"
        )
    )
    tables.append(page.export(gap_table("e2_gap", page.tables["e2_gap"]), "e2_gap"))
    figures = [page.figures[name] for name in ("e2_mass",) if name in page.figures]
    return render(
        "e2.html.j2", numbers=numbers, tables=tables, figures=figures, sample=sample(statistics, page.cfg["report"]["quick"]),
        unreliable=bool((statistics["reliable"] != "yes").any()),
    )  # fmt: skip


SECTION = Section("e2", "E2: does gate mass order the loss", 44, ("e2_measures", "e2_statistics", "e2_gap", "e2_orders"), _render)
