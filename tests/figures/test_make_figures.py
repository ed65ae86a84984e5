"""Figures: complete, labelled, the same bytes every time, and drawn from the tables."""

from __future__ import annotations

import dataclasses
import re
import shutil

import numpy as np
import pytest
from synthetic_study import CAPACITIES, DOMAINS, POLICIES
from tests.canvas_check import check_inside

from expertmiss.errors import UserError
from expertmiss.figures.base import figures
from expertmiss.figures.panels import headline
from expertmiss.figures.save import FORMATS, plain_line
from expertmiss.figures.stage import run
from expertmiss.figures.style import POLICY_LOOKS, policy_look, policy_order
from expertmiss.files import read_json, sha256_file
from expertmiss.stages import Context
from expertmiss.stats.tables import read_table, write_table

pytestmark = pytest.mark.filterwarnings("error")
CONTEXT = Context("test", "0" * 64)
NAMES = ["hit_rate", "substituted_mass", "gate_weight", "reuse_experts", "reuse_tokens"]


@pytest.fixture(scope="module")
def drawn(statistics, tmp_path_factory):
    out = tmp_path_factory.mktemp("drawn") / "results" / "figures"
    run({"report": {"quick": True}}, tables=list(statistics.values()), out=out, context=CONTEXT)
    return out


def frames(statistics):
    return {name: read_table(path).frame for name, path in statistics.items()}


def test_every_figure_exists_in_every_format_with_its_description(drawn, statistics):
    assert [figure.name for figure in figures() if set(figure.needs) <= set(statistics)] == NAMES
    for name in NAMES:
        description = read_json(drawn / f"{name}.json")
        assert set(description["files"]) == {f"{kind}/{name}.{kind}" for kind in FORMATS}
        assert all(sha256_file(drawn / file) == digest for file, digest in description["files"].items())
        assert description["labels"]["n"]["documents"] == 44 and "quick run" in description["labels"]["notes"]
        assert description["alt"] and description["caption"].endswith(".")
        for table, digest in description["sources"].items():
            assert sha256_file(statistics[table.removesuffix(".parquet")]) == digest
    assert read_json(drawn / "run.json")["metrics"]["figures"] == len(NAMES)


def test_labels_stand_in_every_file(drawn):
    for name in NAMES:
        line = plain_line(read_json(drawn / f"{name}.json")["label_line"])
        assert line.startswith("n: 44 documents, 44 sources") and "synthetic routing" in line and "quick run" in line
        for kind in FORMATS:
            assert line.encode() in (drawn / kind / f"{name}.{kind}").read_bytes()


def test_equal_tables_give_equal_bytes_and_no_date(drawn, statistics, tmp_path):
    run({"report": {"quick": True}}, tables=[statistics["summary"], statistics["reuse"]], out=tmp_path / "results", context=CONTEXT)
    again = [path for path in sorted((tmp_path / "results").rglob("*.*")) if path.name != "run.json"]
    assert len(again) == 4 * 4
    for path in again:
        assert path.read_bytes() == (drawn / path.relative_to(tmp_path / "results")).read_bytes(), path.name
    assert b"CreationDate" not in (drawn / "pdf" / "hit_rate.pdf").read_bytes()
    assert "<dc:date>" not in (drawn / "svg" / "hit_rate.svg").read_text()


def test_lines_are_the_tables_numbers(statistics):
    tables = frames(statistics)
    figure = next(item for item in figures() if item.name == "hit_rate").draw(tables)
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    assert list(lines) == list(POLICY_LOOKS)
    rows = tables["summary"].query("measure == 'hit_rate' and policy == 'speed_first'").sort_values("capacity")
    np.testing.assert_array_equal(lines["speed_first"].get_xdata(), CAPACITIES)
    np.testing.assert_array_equal(lines["speed_first"].get_ydata(), rows["estimate"])
    reuse = next(item for item in figures() if item.name == "reuse_tokens").draw(tables)
    assert [line.get_label() for line in reuse.axes[0].lines] == list(DOMAINS)


def test_alternative_text_has_the_numbers(statistics):
    tables = frames(statistics)
    alt = next(item for item in figures() if item.name == "hit_rate").alt(tables)
    capacity = headline(tables["summary"])
    assert capacity == 8
    row = tables["summary"].query("measure == 'hit_rate' and policy == 'rule_015' and capacity == @capacity").iloc[0]
    assert f"rule_015 {100 * row['estimate']:.1f} %" in alt


def test_one_capacity_becomes_rows_with_interval_bars(statistics):
    tables = frames(statistics)
    tables["summary"] = tables["summary"].query("capacity == 8")
    axes = next(item for item in figures() if item.name == "hit_rate").draw(tables).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(POLICY_LOOKS)[::-1]
    assert "C = 8" in axes.get_xlabel()


def test_nothing_is_drawn_outside_the_canvas_or_over_the_labels(statistics):
    for item in (figure for figure in figures() if set(figure.needs) <= set(statistics)):
        check_inside(item, frames(statistics))


def test_policies_keep_their_looks_whatever_else_is_shown():
    names = [*POLICIES, *(f"sweep_{index}" for index in range(14))]
    assert policy_order(reversed(names))[:6] == list(POLICY_LOOKS)
    looks = [policy_look(name, names) for name in names]
    assert len(set(map(str, looks))) == len(names)
    assert policy_look("rule_015", ["rule_015"]) == policy_look("rule_015", names)
    assert len({look.colour for look in POLICY_LOOKS.values()}) == len({look.marker for look in POLICY_LOOKS.values()}) == 6


def test_a_table_alone_draws_its_own_figures(statistics, tmp_path):
    run({"report": {"quick": False}}, tables=[statistics["reuse"]], out=tmp_path / "results", context=CONTEXT)
    assert sorted(path.stem for path in (tmp_path / "results").glob("reuse*.json")) == ["reuse_experts", "reuse_tokens"]
    assert not (tmp_path / "results" / "hit_rate.json").exists()
    assert "quick run" not in read_json(tmp_path / "results" / "reuse_tokens.json")["labels"]["notes"]


def test_no_known_table_and_no_labels_are_refused(statistics, tmp_path):
    with pytest.raises(UserError, match="no figure draws from differences"):
        run({"report": {"quick": True}}, tables=[statistics["differences"]], out=tmp_path / "results", context=CONTEXT)
    bare = tmp_path / "bare" / "summary.parquet"
    bare.parent.mkdir()
    read_table(statistics["summary"]).frame.to_parquet(bare)
    with pytest.raises(UserError, match="no labels"):
        run({"report": {"quick": True}}, tables=[bare], out=tmp_path / "results", context=CONTEXT)


def test_a_table_that_run_json_disagrees_with_is_refused(statistics, tmp_path):
    folder = tmp_path / "results" / "test" / "analyze_traces"
    shutil.copytree(statistics["reuse"].parent, folder)
    run({"report": {"quick": True}}, tables=[folder / "reuse.parquet"], out=tmp_path / "results" / "before", context=CONTEXT)
    table = read_table(folder / "reuse.parquet")
    write_table(folder / "reuse.parquet", table.frame.assign(share=table.frame["share"] / 2), table.labels, table.sources)
    with pytest.raises(UserError, match=r"reuse\.parquet: changed since analyze_traces wrote it \(run\.json disagrees\)"):
        run({"report": {"quick": True}}, tables=[folder / "reuse.parquet"], out=tmp_path / "results" / "after", context=CONTEXT)


def test_tables_of_different_substrates_share_no_artifact(statistics, tmp_path):
    table = read_table(statistics["reuse"])
    other = tmp_path / "reuse.parquet"
    write_table(other, table.frame, dataclasses.replace(table.labels, substrate="random_weights"), table.sources)
    with pytest.raises(UserError, match=re.escape("labels.substrate")):
        run({"report": {"quick": True}}, tables=[statistics["summary"], other], out=tmp_path / "results", context=CONTEXT)
