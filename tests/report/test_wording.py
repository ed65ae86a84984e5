"""Words follow the configuration: findings choose policies by what they are, methods say how caches begin."""

from __future__ import annotations

import copy

import pytest
from rendered import CFG, CONTEXT, run_files
from report_page import PageReader
from synthetic_study import cells, write_cells, write_study

from expertmiss.files import read_json, write_json
from expertmiss.report.stage import run
from expertmiss.stats import summarize

WARM = "Every document starts from the same warm cache: the experts that the calibration split requests most."


@pytest.fixture
def cfg():
    return copy.deepcopy(CFG)


def read(cfg, statistics, out):
    run(cfg, runs=run_files(statistics), out=out, context=CONTEXT)
    return PageReader((out / "index.html").read_text()).text


def test_the_threshold_is_the_configured_one(cfg, statistics, tmp_path):
    cfg["policies"]["rule_015"]["miss_rule"]["tau"] = 0.3
    text = read(cfg, statistics, tmp_path / "reports")
    assert "gate weights of at least 0.3 ( rule_015 )" in text and "the 0.3 rule ( rule_015 )" in text and "at least 0.15" not in text


def test_policies_are_found_whatever_their_names(cfg, tmp_path):
    names = {"fetch_all": "fetch_all", "rule_015": "patient", "substitute_all": "hasty", "speed_first": "quick"}
    frame = cells(capacities=(8,))
    path = write_cells(tmp_path / "results" / "cells", frame[frame["policy"].isin(names)].replace({"policy": names}))
    out = tmp_path / "results" / "summary"
    summarize.run({"stats": {**CFG["stats"], "resamples": 20}}, cells=path, out=out, context=CONTEXT)
    cfg["policies"] = {new: cfg["policies"][old] for old, new in names.items()}
    text = read(cfg, {"summary": out / "summary.parquet"}, tmp_path / "reports")
    assert "at least 0.15 ( patient )" in text and "every miss ( hasty )" in text and "quick is" in text
    assert "first choice alone" not in text


def test_a_name_that_does_not_fit_its_rule_makes_no_sentence(cfg, statistics, tmp_path):
    cfg["policies"]["fetch_all"]["miss_rule"] = {"name": "substitute_all"}
    cfg["policies"]["rule_015"]["miss_rule"] = {"name": "first_choice"}
    findings = read(cfg, statistics, tmp_path / "reports").partition("Key findings")[2]
    assert "waiting for every miss" not in findings and "at least" not in findings.partition("What each policy does")[0]


def test_carried_state_and_other_starts_are_said_and_marked(cfg, statistics, tmp_path):
    assert WARM in read(cfg, statistics, tmp_path / "reports" / "warm")
    cfg["policies"]["rule_015"]["state"] = "carry"
    cfg["policies"]["first_choice"]["initial"] = "cold"
    cfg["policies"]["substitute_all"].update(initial="random", scope="global")
    text = read(cfg, statistics, tmp_path / "reports" / "mixed")
    assert WARM not in text and "requests most under fetch_all" in text
    assert "State is carried over documents under rule_015 : the first starts from the same warm cache" in text
    assert "starts from an empty cache under first_choice ." in text and "drawn at random by the seed under substitute_all ." in text
    assert "Under substitute_all all layers share one pool" in text
    assert "Not for rule_015 : the bootstrap takes documents of different sources as independent" in text
    assert text.count("inconclusive: the cache is carried over documents") == 1 and "†" in text


def test_sources_are_named_for_the_builtin_corpus_only(cfg, statistics, tmp_path):
    assert "whole sources (packages or templates), since" in read(cfg, statistics, tmp_path / "reports" / "builtin")
    cfg["corpus"]["kind"] = "local"
    assert "whole sources, since" in read(cfg, statistics, tmp_path / "reports" / "local")


def test_the_split_of_a_run_stands_in_its_provenance(cfg, tmp_path):
    statistics = write_study(tmp_path / "results", resamples=20)
    capture = tmp_path / "results" / "test" / "capture_traces" / "run.json"
    write_json(capture, {**read_json(capture), "config": {"split": "calibration"}})
    run(cfg, runs=[capture, *run_files(statistics)], out=tmp_path / "reports", context=CONTEXT)
    assert "capture_traces (calibration)" in PageReader((tmp_path / "reports" / "index.html").read_text()).text


def test_kl_of_lossless_execution_is_explained(cfg, statistics, tmp_path):
    assert "over all E experts, so lossless execution of its K choices is above 0 too." in read(cfg, statistics, tmp_path / "reports")
