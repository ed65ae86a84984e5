"""Experiment B: the registered plan beside what came out; the same section shows the pilot, and then says so."""

from __future__ import annotations

from typing import Any

import pandas as pd
from markupsafe import Markup

from expertmiss.report.base import Page, Section, render
from expertmiss.report.numbers import digits_for, show, show_interval
from expertmiss.report.shown import Cell, ShownTable, estimate_cell

VERDICTS = {
    "heavy_worse": "few heavy substitutions cost more than many light ones", "light_worse": "many light substitutions cost more than few heavy ones",
    "equivalent": "equivalent: the effect is smaller than delta", "inconclusive": "inconclusive", "no_verdict": "no verdict",
}  # fmt: skip


def _render(page: Page) -> Markup:
    plan, effects = page.tables["b_plan"], page.tables["b_effects"]
    primary: dict[Any, Any] = effects[effects["role"] == "primary"].iloc[0].to_dict()
    registered = {row["name"]: page.numbers.plain(("B", row["name"]), float(f"{row['value']:.4g}")) for row in plan.to_dict("records")}
    tables = [
        page.export(_plan(plan), "b_plan"),
        page.export(_effects(effects), "b_effects"),
        page.export(_arms(page.tables["b_arms"]), "b_arms"),
    ]
    if len(page.tables["b_power"]):
        tables.append(page.export(_power(page.tables["b_power"]), "b_power"))
    return render(
        "b.html.j2", verdict=VERDICTS.get(primary["verdict"]), not_zero=bool(primary["not_zero"]), reason=primary["reason"],
        claim=primary["claim"], lock=primary["lock"][:12], changed=primary["status"] != "confirmatory", registered=registered,
        effect=page.numbers.estimate(("B", "effect"), primary, "nats", signed=True),
        equivalence=page.numbers.estimate(("B", "effect", "equivalence"), primary, "nats", signed=True, names=("estimate", "low_equivalence", "high_equivalence")),
        passed=page.numbers.plain(("B", "passed"), float(f"{100 * primary['share_passed']:.3g}")), documents=int(primary["documents"]),
        clusters=int(primary["clusters"]), masses=[page.numbers.plain(("B", name), float(f"{primary[name]:.4g}")) for name in ("mass_heavy", "mass_light")],
        tables=tables, figures=[page.figures[name] for name in ("b_effects", "b_arms", "b_mass", "b_pairs") if name in page.figures],
        unreliable=bool((effects["reliable"] != "yes").any()),
    )  # fmt: skip


def _plan(frame: pd.DataFrame) -> ShownTable:
    cells = [[Cell(row["name"]), Cell(f"{row['value']:.4g}"), Cell(row["meaning"])] for row in frame.to_dict("records")]
    return ShownTable("b_plan", "Numbers of the plan.", ["Name", "Value", "Meaning"], cells, frame)


def _effects(frame: pd.DataFrame) -> ShownTable:
    cells = [
        [
            Cell(f"{row['comparison']} ({row['role']})"), estimate_cell(row, signed=True), Cell("–" if pd.isna(row["p_holm"]) else f"{row['p_holm']:.2g}"),
            Cell(f"{row['mass_heavy']:.4f}"), Cell(f"{row['mass_light']:.4f}"), Cell(show("share", float(row["share_passed"]), 0)),
        ]
        for row in frame.to_dict("records")
    ]  # fmt: skip
    title = "Heavy minus light at equal mass (nats per token), realised masses, documents that pass the manipulation check; p by Holm over the secondary comparisons."
    return ShownTable("b_effects", title, ["Comparison", "Effect", "p", "Mass, heavy", "Mass, light", "Pass"], cells, frame)


def _arms(frame: pd.DataFrame) -> ShownTable:
    cells = []
    for row in frame.to_dict("records"):
        digits = digits_for("nats", float(row["estimate"]), float(row["low"]), float(row["high"]))
        loss = Cell(
            show("nats", float(row["estimate"]), digits, True), show_interval("nats", float(row["low"]), float(row["high"]), digits, True)
        )
        cells.append([
            Cell(row["arm"].replace("/", ", ").replace("_", " ")), loss, Cell(show("share", float(row["substituted_share"]), 1)), Cell(f"{row['mass']:.4f}"),
            Cell(f"{row['weight']:.3f}"),
        ])  # fmt: skip
    title = "Arms: NLL against the lossless reference (nats per token), share of calls substituted, realised mass, mean gate weight of a substituted call."
    return ShownTable("b_arms", title, ["Arm", "Loss", "Calls", "Mass", "Weight"], cells, frame)


def _power(frame: pd.DataFrame) -> ShownTable:
    wide = frame.pivot(index=["documents", "effect"], columns="verdict", values="share").reset_index()
    verdicts = [name for name in VERDICTS if name in wide]
    cells = [
        [
            Cell(f"{int(row['documents'])} documents, {row['effect']:g} delta"),
            *(Cell(show("share", float(row[name]), 1)) for name in verdicts),
        ]
        for row in wide.to_dict("records")
    ]
    title = f"How often the decision answers what, by true effect: {int(frame['simulations'].iloc[0]):,} simulated studies each."
    return ShownTable("b_power", title, ["True effect", *(name.replace("_", " ") for name in verdicts)], cells, frame)


SECTION = Section(
    "b", "Experiment B: few heavy or many light substitutions", 47, ("b_plan", "b_arms", "b_pairs", "b_effects", "b_power"), _render
)
