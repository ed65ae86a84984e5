"""The report holds what the stages wrote: changed, missing and stale files are refused."""

from __future__ import annotations

import pytest
from rendered import CFG, CONTEXT, draw
from synthetic_study import write_study

from expertmiss.errors import UserError
from expertmiss.files import read_json, write_json
from expertmiss.report.stage import run
from expertmiss.stats.tables import read_table, write_table


@pytest.fixture
def study(tmp_path):
    """Tables by name, and run.json of the statistics and figures."""
    tables = write_study(tmp_path / "results", resamples=20)
    return tables, draw(tables, tmp_path / "results" / "test" / "make_figures")


def inflate(path):
    table = read_table(path)
    write_table(path, table.frame.assign(estimate=1.1 * table.frame["estimate"]), table.labels, table.sources)


def refused(runs, out, words):
    with pytest.raises(UserError, match=words) as caught:
        run(CFG, runs=runs, out=out, context=CONTEXT)
    assert "\n" not in str(caught.value)
    assert not (out / "index.html").exists()


def test_a_changed_table_and_a_deleted_one_are_refused(study, tmp_path):
    tables, runs = study
    inflate(tables["summary"])
    refused(runs, tmp_path / "reports", r"summary\.parquet: changed since summarize_policies wrote it \(run\.json disagrees\)")
    tables["summary"].unlink()
    refused(runs, tmp_path / "reports", r"summary\.parquet: missing, though summarize_policies wrote it")


@pytest.mark.parametrize(
    ("stage", "name"),
    [("summarize_policies", "summary.parquet"), ("analyze_traces", "reuse.parquet"), ("make_figures", "hit_rate.json")],
)
def test_a_run_that_records_less_than_its_stage_makes_is_refused(study, tmp_path, stage, name):
    _, runs = study
    path = next(path for path in runs if path.parent.name == stage)
    recorded = read_json(path)
    recorded["outputs"] = {file: digest for file, digest in recorded["outputs"].items() if not file.endswith(f"/{name}")}
    write_json(path, recorded)
    refused(runs, tmp_path / "reports", f"{stage} recorded no {name}")


def test_a_changed_figure_is_refused(study, tmp_path):
    _, runs = study
    picture = runs[-1].parent / "png" / "hit_rate.png"
    picture.write_bytes(picture.read_bytes() + b" ")
    refused(runs, tmp_path / "reports", r"hit_rate\.png: changed since make_figures wrote it")


def test_figures_of_other_tables_are_refused(study, tmp_path):
    _, runs = study
    other = tmp_path / "other" / "results"
    newer = write_study(other, resamples=21)
    mixed = [*sorted({path.parent / "run.json" for path in newer.values()}), runs[-1]]
    refused(mixed, tmp_path / "reports", "drawn from another")


def test_a_file_that_no_run_records_is_not_shown(study, tmp_path):
    _, runs = study
    (runs[-1].parent / "stray.json").write_text('{"figure": "stray"}')
    run(CFG, runs=runs, out=tmp_path / "reports", context=CONTEXT)
    assert not list((tmp_path / "reports").rglob("stray*"))
