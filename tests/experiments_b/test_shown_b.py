"""Figures and section of Experiment B, as a pilot and as a decided experiment; claim C3."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from expertmiss.experiments.b.pilot import propose
from expertmiss.experiments.b.sites import cells_of, fit, overlap
from expertmiss.experiments.b.tables import with_verdict
from expertmiss.experiments.verdicts import judge_c3
from expertmiss.figures import stage as figures
from expertmiss.figures.base import figures as known
from expertmiss.provenance import Labels, write_run
from expertmiss.report import stage as report
from expertmiss.report.check import problems
from expertmiss.stages import Context
from expertmiss.stats.tables import write_table
from tests.canvas_check import check_inside
from tests.experiments_b.test_pilot_numbers import AVAILABLE, DECISION, LEVELS, PLAN, cells
from tests.experiments_b.test_sites import invented

NAMES = {"b_effects", "b_arms", "b_mass", "b_pairs", "b_sites"}
RESULT = {"verdict": "heavy_worse", "reason": "few heavy cost more", "status": "confirmatory", "lock": "abc" * 21, "not_zero": True}


def tables_of(status: str) -> dict[str, pd.DataFrame]:
    """Tables of invented cells."""
    tables = propose(cells(0.002, documents=90), LEVELS, PLAN, DECISION, AVAILABLE)[1]
    frame = invented(1200)
    tables |= {"b_site_model": fit(frame, 0.95), "b_site_cells": cells_of(frame, 0.95), "b_site_overlap": overlap(frame)}
    if status == "confirmatory":
        tables["b_effects"] = with_verdict(tables["b_effects"], RESULT, 40)
    return tables


@pytest.fixture(scope="module", params=["exploratory", "confirmatory"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, dict[str, pd.DataFrame]]:

    root = tmp_path_factory.mktemp("shown_b")
    labels = Labels("random_weights", "own", "none", "this_host", request.param, {"documents": 90, "sources": 45})
    tables, here, context = tables_of(request.param), root / "results" / "b" / "tables", Context("b", "code")
    paths = [path for name, frame in tables.items() for path in write_table(here / f"{name}.parquet", frame, labels, {})]
    write_run(
        here, stage="pilot_experiment_b", experiment="b", name="invented", config={}, source_hash="x", inputs=[], outputs=paths, artifacts=[],
        metrics={}, timings={}, labels=labels, started=datetime.now(UTC),
    )  # fmt: skip
    drawn = root / "results" / "b" / "draw"
    figures.run({"report": {"quick": False}}, tables=[path for path in paths if path.suffix == ".parquet"], out=drawn, context=context)
    cfg = {
        "report": {"title": "B", "quick": False}, "model": {"name": "tiny", "title": "a tiny model"}, "corpus": {"name": "invented"}, "policies": {},
        "stats": {"confidence": 0.95}, "simulate": {},
    }  # fmt: skip
    out = root / "reports" / "b" / "experiment_b"
    report.run(cfg, runs=[here / "run.json", drawn / "run.json"], out=out, context=context)
    return request.param, out, tables


def test_the_page_is_whole(page: tuple[str, Path, dict[str, Any]]) -> None:
    status, out, _ = page
    text = (out / "index.html").read_text()
    assert '<section id="b"' in text and '<section id="b_sites"' in text and problems(out) == []
    assert {path.stem for path in (out / "figures").glob("*.json")} == NAMES
    assert {path.stem for path in (out / "tables").glob("*.json")} == {
        "b_plan", "b_effects", "b_arms", "b_power", "b_site_model", "b_site_cells", "b_site_overlap",
    }  # fmt: skip
    words = re.sub(r"<svg.*?</svg>|<[^>]*>", " ", text, flags=re.DOTALL)
    assert "nan" not in words.lower().split()
    assert ("decides nothing" in words) == (status == "exploratory")
    assert ('<p class="verdict"><strong>few heavy substitutions cost more' in text) == (status == "confirmatory")
    assert ("Claim C3: same direction" in words) == (status == "confirmatory")
    assert ("abcabcabcabc" in words) == (status == "confirmatory")


def test_numbers_of_the_text_are_the_tables(page: tuple[str, Path, dict[str, Any]]) -> None:
    _, out, tables = page
    macros = (out / "numbers.tex").read_text()
    shown = re.search(r"XmBEffect\}\{\+?(.*?)\}", macros)
    assert shown and float(shown.group(1)) == pytest.approx(tables["b_effects"]["estimate"].iloc[0], abs=6e-4)


def test_nothing_is_drawn_outside_the_canvas(page: tuple[str, Path, dict[str, Any]]) -> None:
    tables = page[2]
    chosen = [figure for figure in known() if figure.name in NAMES]
    assert len(chosen) == 5
    for figure in chosen:
        check_inside(figure, tables)
        assert figure.alt(tables).endswith(".")


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        ("heavy_worse", "holds"),
        ("light_worse", "fails"),
        ("equivalent", "fails"),
        ("inconclusive", "inconclusive"),
        ("no_verdict", "inconclusive"),
    ],
)
def test_c3_follows_the_primary_verdict_alone(verdict: str, outcome: str) -> None:
    row = pd.DataFrame([{"verdict": verdict, "reason": "why", "status": "confirmatory", "estimate": np.nan, "clusters": 40}])
    assert judge_c3(row, {"min_clusters": 40}) == (outcome, "why")
    changed = judge_c3(row.assign(status="exploratory (plan changed)"), {"min_clusters": 40})
    assert changed.outcome == outcome and "plan changed" in changed.why
