"""E7: what the model writes under every arm, and the registered predictions."""

from __future__ import annotations

from typing import Any

import pandas as pd
from markupsafe import Markup

from expertmiss.figures.e7_panels import TITLES
from expertmiss.report.base import Page, Section, render
from expertmiss.report.numbers import digits_for, show, show_interval
from expertmiss.report.shown import Cell, ShownTable

EXAMPLES = 2  # of each task, in full


def _render(page: Page) -> Markup:
    accuracy, paired, predictions, examples = (page.tables[f"e7_{name}"] for name in ("accuracy", "paired", "predictions", "examples"))
    quick, lock = page.cfg["report"]["quick"], str(predictions["lock"].iloc[0]) if len(predictions) else "none"
    tables = [page.export(_predictions(predictions), "e7_predictions")] if len(predictions) else []
    more = [
        page.export(_accuracy(accuracy), "e7_accuracy"),
        page.export(_differences(paired), "e7_paired"),
        page.export(_agreement(paired), "e7_paired"),
    ]
    for name, make in (("flips", _flips), ("orders", _orders), ("passes", _passes)):
        frame = page.tables[f"e7_{name}"]
        if len(frame):
            more.append(page.export(make(frame), f"e7_{name}"))
    counts = {
        word: page.numbers.plain(("generation", word), int((predictions["outcome"] == word).sum()))
        for word in ("held", "failed", "undecided")
    }
    return render(
        "e7.html.j2", quick=quick, lock=lock, counts=counts, judged=len(predictions), tables=tables, more=more, findings=_findings(page, accuracy, paired),
        figures=[page.figures[name] for name in ("e7_accuracy", "e7_agreement", "e7_divergence") if name in page.figures],
        examples=_pairs(examples), unreliable=bool((paired["reliable"] != "yes").any()),
    )  # fmt: skip


def _findings(page: Page, accuracy: pd.DataFrame, paired: pd.DataFrame) -> list[tuple[str, Any, Any, int]]:
    """Task, accuracy of the reference, difference of rule_015 (either may not be measured), problems."""
    found = []
    for task in dict.fromkeys(accuracy["task"]):
        own = accuracy[(accuracy["task"] == task) & accuracy["primary"] & (accuracy["arm"] == "fetch_all")].iloc[0].to_dict()
        rule = paired[(paired["task"] == task) & paired["primary"] & (paired["arm"] == "rule_015")]
        first = (
            None
            if pd.isna(own["accuracy"])
            else page.numbers.estimate(("generation", task, "fetch_all"), own, "share", names=("accuracy", "low", "high"))
        )
        second = None
        if len(rule) and not pd.isna(rule["difference"].iloc[0]):
            row = {str(name): value for name, value in rule.iloc[0].items()}
            second = page.numbers.estimate(("generation", task, "rule_015"), row, "share", signed=True, names=("difference", "low", "high"))
        found.append((TITLES.get(task, task), first, second, int(own["n"])))
    return found


def _share(row: Any, names: tuple[str, str, str], signed: bool = False) -> Cell:
    value, low, high = (float(row[name]) for name in names)
    digits = digits_for("share", value, low, high)
    mark = "" if row.get("reliable", "yes") == "yes" else " †"
    return Cell(show("share", value, digits, signed) + mark, show_interval("share", low, high, digits, signed))


def _number(row: Any, names: tuple[str, str, str]) -> Cell:
    value, low, high = (float(row[name]) for name in names)
    return Cell(show("weight", value, 3) + ("" if row["reliable"] == "yes" else " †"), show_interval("weight", low, high, 3))


def _whole(value: float) -> Cell:
    return Cell("–" if pd.isna(value) else f"{int(value):,}")


def _plain(value: float, digits: int = 3) -> Cell:
    return Cell("–" if pd.isna(value) else f"{value:.{digits}g}")


def _place(row: Any) -> Cell:
    return Cell(f"{TITLES.get(row['task'], row['task'])}, {row['arm']}")


def _predictions(frame: pd.DataFrame) -> ShownTable:
    cells = [
        [
            Cell(row["id"]), Cell(f"{TITLES.get(row['task'], row['task'])}: {row['says']}"), Cell(row["verdict"]), Cell(row["why"]),
            Cell(*_measured(row)), _detectable(row),
        ]
        for row in frame.to_dict("records")
    ]  # fmt: skip
    title = "Registered predictions, each judged by itself; the measured value with its interval, and the smallest effect that could have been found (power 80 %)."
    return ShownTable("e7_predictions", title, ["", "Prediction", "Outcome", "Why", "Measured", "Detectable"], cells, frame)


def _detectable(row: Any) -> Cell:
    return Cell(show("share", float(row["detectable"]), 1)) if row["statistic"].endswith("difference") else _plain(row["detectable"])


def _measured(row: Any) -> tuple[str, str]:
    if pd.isna(row["estimate"]):
        return "–", ""
    if row["statistic"].endswith("difference"):
        digits = digits_for("share", row["estimate"], row["low"], row["high"])
        return show("share", row["estimate"], digits, True), show_interval("share", row["low"], row["high"], digits, True)
    return show("weight", row["estimate"], 3), show_interval("weight", row["low"], row["high"], 3)


def _accuracy(frame: pd.DataFrame) -> ShownTable:
    cells = [
        [
            Cell(f"{_place(row).text}, {row['rule']}" + ("" if row["primary"] else " (not primary)")),
            Cell("not measured") if pd.isna(row["accuracy"]) else _share(row, ("accuracy", "low", "high")),
            Cell(f"{row['correct']:,} of {row['n']:,}" if not pd.isna(row["accuracy"]) else "–"), _whole(row["truncated"]), _whole(row["unmarked"]),
            _whole(row["fallback"]), Cell(f"{row['length']:.1f}"), Cell(show("share", float(row["miss_rate"]), 1)), _plain(row["mass"]),
        ]
        for row in frame.to_dict("records")
    ]  # fmt: skip
    title = (
        "Accuracy by arm and scoring rule; answers cut at the token cap, answers in which the rule finds nothing, those of them in which another rule does; "
        "mean length in tokens; misses and substituted mass of the decode steps."
    )
    columns = ["Task, arm, rule", "Accuracy", "Solved", "Truncated", "Unmarked", "Fallback", "Length", "Misses", "Mass"]
    return ShownTable("e7_accuracy", title, columns, cells, frame)


def _differences(frame: pd.DataFrame) -> ShownTable:
    cells = [
        [
            Cell(f"{_place(row).text}, {row['rule']}" + ("" if row["primary"] else " (not primary)")),
            Cell("not measured") if pd.isna(row["difference"]) else _share(row, ("difference", "low", "high"), True), _whole(row["gained"]), _whole(row["lost"]),
            _plain(row["mcnemar"], 2), Cell(show("share", float(row["detectable"]), 1)),
        ]
        for row in frame.to_dict("records")
    ]  # fmt: skip
    title = (
        "Accuracy minus the reference's on the same problems; problems only the arm or only the reference solves; exact McNemar p (as if problems were independent); "
        "smallest difference that could have been found (power 80 %)."
    )
    return ShownTable("e7_differences", title, ["Task, arm, rule", "Difference", "Gained", "Lost", "p", "Detectable"], cells, frame)


def _agreement(frame: pd.DataFrame) -> ShownTable:
    rows = frame[frame["primary"]]
    cells = [
        [
            _place(row), _share(row, ("same_text", "same_text_low", "same_text_high")), Cell(show("share", float(row["same_answer"]), 1)),
            Cell(show("share", float(row["token_agreement"]), 1)), _whole(row["median_divergence"]), Cell(f"{row['length_difference']:+.1f}"), _plain(row["mass"]),
        ]
        for row in rows.to_dict("records")
    ]  # fmt: skip
    title = (
        "Agreement with the reference: equal texts, equal answers (functions: equal verdict of the tests), equal tokens at equal positions; median position of the "
        "first different token where there is one; mean difference of length in tokens; substituted mass."
    )
    columns = ["Task, arm", "Same text", "Same answer", "Same tokens", "First divergence", "Length", "Mass"]
    return ShownTable("e7_agreement", title, columns, cells, rows)


def _flips(frame: pd.DataFrame) -> ShownTable:
    cells = [
        [
            _place(row), _whole(row["flips"]), Cell("–") if pd.isna(row["auc"]) else _number(row, ("auc", "low", "high")), _plain(row["detectable"]),
            _plain(row["mass_flipped"]), _plain(row["mass_others"]),
        ]
        for row in frame.to_dict("records")
    ]  # fmt: skip
    title = (
        "Does a problem's mass tell whether it flips (solved by one of arm and reference only)? AUC of mass, smallest distance from 0.5 that could have been found, "
        "mean mass of problems that flip and of the others."
    )
    return ShownTable("e7_flips", title, ["Task, arm", "Flips", "AUC", "Detectable", "Mass, flips", "Mass, others"], cells, frame)


def _orders(frame: pd.DataFrame) -> ShownTable:
    cells = [
        [Cell(TITLES.get(row["task"], row["task"])), _number(row, ("estimate", "low", "high")), _whole(row["arms"]), _whole(row["pairs"])]
        for row in frame.to_dict("records")
    ]
    title = "Share of pairs of arms, all of which execute the first choice, in which the arm of less mass agrees more often with the reference (ties count half)."
    return ShownTable("e7_orders", title, ["Task", "Concordant", "Arms", "Pairs"], cells, frame)


def _passes(frame: pd.DataFrame) -> ShownTable:
    cells = [
        [_place(row), Cell(f"pass@{row['k']}"), _share(row, ("estimate", "low", "high")), _whole(row["samples"])]
        for row in frame.to_dict("records")
    ]
    return ShownTable(
        "e7_passes",
        "Unbiased pass@k over all answers to a problem, intervals over templates.",
        ["Task, arm", "k", "Share", "Answers"],
        cells,
        frame,
    )


def _pairs(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The first pairs of each task, one an arm: texts cut where they part."""
    found: list[dict[str, Any]] = []
    for task, part in frame.groupby("task", sort=False):
        for row in part.drop_duplicates("arm").head(EXAMPLES).to_dict("records"):
            same = int(row["same_characters"])
            found.append({
                **{str(name): value for name, value in row.items()}, "task": TITLES.get(str(task), str(task)), "common": row["text"][:same],
                "reference_rest": row["reference"][same:], "rest": row["text"][same:], "mass_before": f"{row['mass_before']:.3g}", "first_divergence": int(row["first_divergence"]),
            })  # fmt: skip
    return found


SECTION = Section(
    "e7", "E7: what the model writes", 48,
    ("e7_accuracy", "e7_paired", "e7_flips", "e7_orders", "e7_survival", "e7_passes", "e7_predictions", "e7_examples"), _render,
)  # fmt: skip
