"""Figures and sections of the emulated experiments: complete, labelled, their numbers those of the tables."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from expertmiss.figures.base import figures
from expertmiss.report.check import problems
from tests.canvas_check import check_inside
from tests.experiments.tiny_study import make_study, show

FIGURES = {"e1_loss", "e1_split", "e2_mass", "e4_bins", "e4_betas"}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("shown") / "results"
    folder.mkdir()
    return make_study(folder)


@pytest.fixture(scope="module")
def page(study: dict[str, Any]) -> Path:
    return show(study, study["folder"].parent)


def test_every_section_and_figure_is_there_and_labelled(page: Path) -> None:
    text = (page / "index.html").read_text()
    for name in ("claims", "e1", "e2", "e4"):
        assert f'<section id="{name}"' in text
    assert {path.stem for path in (page / "figures").glob("*.json")} == FIGURES
    for path in (page / "figures").glob("*.json"):
        described = json.loads(path.read_text())
        assert described["labels"]["substrate"] == "random_weights" and "closed loop" in described["labels"]["notes"]
        assert described["alt"] and described["caption"].endswith(".")
    assert problems(page) == []
    assert "nan" not in re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL).lower().split()


def test_a_quick_run_says_so_and_judges_nothing(page: Path) -> None:
    text = (page / "index.html").read_text()
    assert "quick run: not judged" in text and "same direction</td>" not in text and "reproduced</td>" not in text


def test_numbers_of_the_text_are_the_tables(study: dict[str, Any], page: Path) -> None:
    found = pd.read_parquet(study["folder"] / "a1" / "e1_statistics.parquet").set_index("statistic")["estimate"]
    macros = (page / "numbers.tex").read_text()
    shown = re.search(r"XmEOneLossOfSubstituteAll\}\{(.*?)\\,", macros)
    assert shown and float(shown.group(1).replace("$-$", "-")) == pytest.approx(100 * found["loss of substitute_all"], abs=0.06)


def test_nothing_is_drawn_outside_the_canvas(study: dict[str, Any]) -> None:
    tables = {path.stem: pd.read_parquet(path) for stage in ("a1", "a2", "a4") for path in (study["folder"] / stage).glob("*.parquet")}
    checked = [figure for figure in figures() if figure.name in FIGURES]
    assert len(checked) == len(FIGURES)
    for figure in checked:
        check_inside(figure, tables)
