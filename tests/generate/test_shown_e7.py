"""Figures and section of the generation test, with everything measured and with next to nothing."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from expertmiss.experiments.lock import Standing
from expertmiss.figures import stage as figures
from expertmiss.figures.base import figures as known
from expertmiss.generate.compare import judged
from expertmiss.generate.examples import example_table
from expertmiss.generate.plan import load_decision, load_plan
from expertmiss.generate.tables import Measured, arm_table, groups_of, pass_table
from expertmiss.provenance import Labels, write_run
from expertmiss.report import stage as report
from expertmiss.report.check import problems
from expertmiss.stages import Context
from expertmiss.stats.tables import write_table
from tests.canvas_check import check_inside

ROOT = Path(__file__).parents[2]
STATS = {"resamples": 200, "confidence": 0.95, "seed": 1, "min_clusters": 40}
LOCKED = "ab" * 32
FIGURES = {"e7_accuracy", "e7_agreement", "e7_divergence"}


def answers(problems: int, arms: list[str], scored: bool) -> list[dict[str, Any]]:
    """Invented answers: the more mass an arm has, the more of its answers differ and fail."""
    draw, rows = np.random.default_rng(0), []
    for task in ("word_problems", "functions"):
        for number in range(problems):
            for place, arm in enumerate(arms):
                same = draw.random() < 1 - 0.1 * place
                tokens = [1, 2, 3, 4] if same else [1, 2, 9]
                right = bool(draw.random() < 0.7 - 0.05 * place)
                rules = ("strict-1", "last_number-1") if task == "word_problems" else ("pass@1",)
                rows.append({
                    "problem": f"{task}/{number}", "task": task, "source": f"{task}{number // 8}", "tokens": tokens, "text": "a <b>\nsame" if same else "a <b>\nother",
                    "finish": "ended", "answers": dict.fromkeys(rules, "7") if task == "word_problems" else {},
                    "correct": dict.fromkeys(rules, right if scored or task == "word_problems" else None), "status": "", "arm": arm, "sample": 0,
                    "meters": {"calls": 40, "hits": 30, "tokens": 10, "mass": 0.02 * place * (1 + draw.random())}, "masses": [0.01 * place] * (len(tokens) - 1),
                })  # fmt: skip
    return rows


def tables_of(rows: list[dict[str, Any]], quick: bool, standing: Standing | None) -> dict[str, pd.DataFrame]:
    plan, groups = load_plan(ROOT), groups_of(rows)
    measured = Measured(groups, STATS, plan["order_arms"])
    statistics = measured.statistics(plan["predictions"])
    prompts = {row["problem"]: f"Ask <{row['problem']}>" for row in rows}
    return {
        "e7_accuracy": arm_table(rows).assign(confidence=0.95), "e7_paired": measured.paired(), "e7_flips": measured.flips(), "e7_orders": measured.orders(),
        "e7_survival": measured.survivals(), "e7_passes": pass_table(rows, [1], STATS), "e7_statistics": statistics,
        "e7_predictions": judged(plan, load_decision(ROOT), statistics, groups, quick, standing), "e7_examples": example_table(groups, prompts),
    }  # fmt: skip


CASES = {
    "registered": (480, load_plan(ROOT)["arms"], True, False, LOCKED),
    "exploratory": (480, load_plan(ROOT)["arms"], True, False, "none"),
    "quick": (6, ["fetch_all", "rule_015"], False, True, "none"),
}


@pytest.fixture(scope="module", params=sorted(CASES))
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, dict[str, pd.DataFrame]]:
    size, arms, scored, quick, lock = CASES[request.param]
    root = tmp_path_factory.mktemp("shown_e7")
    tables = tables_of(answers(size, arms, scored), quick, None if lock == "none" else Standing(lock, "confirmatory", {}))
    labels = Labels(
        "random_weights", "own", "none", "this_host", "confirmatory" if lock == LOCKED else "exploratory", {"problems": 2 * size}
    )
    here, context = root / "results" / "x" / "tables", Context("x", "code")
    paths = [path for name, frame in tables.items() for path in write_table(here / f"{name}.parquet", frame, labels, {})]
    write_run(
        here, stage="compare_answers", experiment="x", name="invented", config={}, source_hash="x", inputs=[], outputs=paths, artifacts=[], metrics={},
        timings={}, labels=labels, started=datetime.now(UTC),
    )  # fmt: skip
    drawn = root / "results" / "x" / "draw"
    figures.run({"report": {"quick": quick}}, tables=[path for path in paths if path.suffix == ".parquet"], out=drawn, context=context)
    cfg = {
        "report": {"title": "E7", "quick": quick}, "model": {"name": "tiny", "title": "a tiny model"}, "corpus": {"name": "invented"}, "policies": {},
        "stats": {"confidence": 0.95}, "simulate": {},
    }  # fmt: skip
    out = root / "reports" / "x" / "generation"
    report.run(cfg, runs=[here / "run.json", drawn / "run.json"], out=out, context=context)
    return request.param, out, tables


def test_the_page_is_whole(page: tuple[str, Path, dict[str, Any]]) -> None:
    name, out, _ = page
    text = (out / "index.html").read_text()
    assert '<table class="words">' in text  # texts stand on the left
    assert '<section id="e7"' in text and problems(out) == []
    assert {path.stem for path in (out / "figures").glob("*.json")} == FIGURES
    words = html.unescape(re.sub(r"<svg.*?</svg>|<[^>]*>", " ", text, flags=re.DOTALL))
    assert "nan" not in words.lower().split()
    assert ("predictions held" in words and LOCKED[:12] in words) == (name == "registered")
    assert ("would have held" in words) == (name == "exploratory")
    assert ("none is judged" in words and "quick run: not judged" in words) == (name == "quick")
    assert ("not measured (no sandbox)" in " ".join(words.split())) == (name == "quick")
    assert "Ask <word_problems/" in words and "a &lt;b&gt;" in text and "a <b>" not in text  # texts of a model are escaped


def test_numbers_of_the_text_are_the_tables(page: tuple[str, Path, dict[str, Any]]) -> None:
    _, out, tables = page
    frame = tables["e7_accuracy"]
    value = frame[(frame["task"] == "word_problems") & frame["primary"] & (frame["arm"] == "fetch_all")]["accuracy"].iloc[0]
    macros = (out / "numbers.tex").read_text()
    shown = re.search(r"XmGenerationWordProblemsFetchAll\}\{([\d.]+)", macros)
    assert shown and float(shown.group(1)) == pytest.approx(100 * value, abs=0.06)
    held = re.search(r"XmGenerationHeld\}\{(\d+)\}", macros)
    assert held and int(held.group(1)) == (tables["e7_predictions"]["outcome"] == "held").sum()


def test_what_is_in_the_answers_is_found(page: tuple[str, Path, dict[str, Any]]) -> None:
    name, _, tables = page
    outcomes = tables["e7_predictions"].set_index("id")["outcome"]
    if name == "quick":
        assert set(outcomes) == {"undecided"} and tables["e7_orders"].empty and set(tables["e7_flips"]["task"]) == {"word_problems"}
    else:
        assert outcomes["W4"] == outcomes["F4"] == "held"  # substitute_all, the last arm, loses 35 points
        assert outcomes["W8"] == "held" and tables["e7_orders"]["pairs"].tolist() == [15, 15]
        assert outcomes["W9"] != "failed"  # masses were drawn without looking at flips


def test_nothing_is_drawn_outside_the_canvas(page: tuple[str, Path, dict[str, Any]]) -> None:
    chosen = [figure for figure in known() if figure.name in FIGURES]
    assert len(chosen) == 3
    for figure in chosen:
        check_inside(figure, page[2])
        assert figure.alt(page[2]).endswith(".")
