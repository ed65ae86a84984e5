"""run_engine and analyze_e5 with a stand-in for the engine: what is run in which order, resume, tables against the runs, known predictions."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from expertmiss.engine import calibrate
from expertmiss.errors import UserError
from expertmiss.experiments import judge
from expertmiss.experiments.e5 import compare
from expertmiss.experiments.e5 import run as engine_run
from expertmiss.experiments.e5.plan import due, load_rules, order, plan
from expertmiss.experiments.e5.predict import summary, with_fit
from expertmiss.experiments.plans import load_claims
from expertmiss.figures import stage as figures
from expertmiss.files import read_json, sha256_file, write_json
from expertmiss.provenance import Labels, write_run
from expertmiss.report import hosts
from expertmiss.report import stage as report
from expertmiss.stats.tables import read_table, write_table
from tests.experiments.tiny_study import CLAIMS, CONTEXT, ROOT, RULES
from tests.experiments_e5.tiny_e5 import EXPERT_BYTES, StandIn, analyse, make_setting_e5, run_engine

PAPER = {"fetch_all", "substitute_all", "first_choice", "rule_015", "quality_first", "speed_first"}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("e5") / "results"
        folder.mkdir()
        setting = make_setting_e5(folder, patch)
        run_engine(setting, folder / "run")
        analyse(setting, folder / "run", folder / "a5")
        yield setting


def test_the_plan_holds_the_papers_policies_and_c2s() -> None:
    rows = plan({"residency": [0.01, 0.25, 0.5]}, load_rules(RULES), load_claims(CLAIMS), 256, 8)
    assert rows[0].row.name == "fetch_all" and rows[0].arm == "reference"
    assert {item.row.name for item in rows if item.arm in ("reference", "paper")} == PAPER
    protected = [item for item in rows if item.arm == "protected"]
    assert len(protected) >= 8 and len({item.family for item in protected}) >= 4
    assert {item.row.capacity for item in rows if item.arm == "cell"} == {128}  # the claims' 64 stands already, 0.01 is below K


def test_every_second_repeat_turns_the_order_round() -> None:
    rows = plan({"residency": [0.5]}, load_rules(RULES), load_claims(CLAIMS), 256, 8)
    chosen = due(rows, 3, 1, timed=2)
    assert {rows[place].row.name for place in chosen} == PAPER and len(chosen) == 6
    assert len(due(rows, 1, 0, timed=2)) == len(rows) and len(due(rows, 2, 0, timed=2)) == 16
    first, second = order(len(rows), chosen, 3, 0), order(len(rows), chosen, 3, 1)
    assert first.tolist() == second.tolist()[::-1] and sorted(first.tolist()) == chosen
    assert order(len(rows), chosen, 4, 0).tolist() != first.tolist()


def test_times_and_cells_are_of_the_same_runs(study: Any) -> None:
    times = pd.read_parquet(study["folder"] / "run" / "times.parquet")
    cells = pd.read_parquet(study["folder"] / "run" / "cells.parquet")
    assert len(times) == 4 * 16 + 2 * 6 + 4 * 6 and len(cells) == 4 * 16
    np.testing.assert_allclose(times["wall"], times[["compute", "waiting", "deciding", "background"]].sum(axis=1))
    first = times[(times["repeat"] == 0) & (times["arm"] != "cell")].set_index(["row", "document"])["nll"]
    np.testing.assert_allclose(cells.set_index(["row", "document"])["nll"], first.sort_index())
    # A call's fetch is paid for by bytes, in the same run; the times leave the first tokens out, the meters do not.
    own = cells[cells["policy"] == "fetch_all"].set_index("document")["fetches"] * EXPERT_BYTES
    paid = times[(times["policy"] == "fetch_all") & (times["arm"] == "reference") & (times["repeat"] == 0)].set_index("document")[
        "fetch_bytes"
    ]
    assert (paid.sort_index() < own.sort_index()).all() and (paid > 0).all()
    run = read_json(study["folder"] / "run" / "run.json")
    assert run["metrics"]["nll_between_repeats"] == 0 and run["labels"]["time"] == "measured" and run["labels"]["n"]["pairs"] == 8
    assert any("bound by latency: reads of 12 KiB" in note for note in run["labels"]["notes"])


def test_a_killed_run_resumes(study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(engine_run, "write_run", lambda *arguments, **options: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run_engine(study, tmp_path)
    parts = sorted((tmp_path / ".parts").rglob("*.safetensors"))
    assert len(parts) == 8
    parts[3].write_bytes(b"cut short")
    before = StandIn.started
    run_engine(study, tmp_path)
    assert 6 <= StandIn.started - before <= 28
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "cells.parquet"), pd.read_parquet(study["folder"] / "run" / "cells.parquet"))


def test_statistics_agree_with_the_runs(study: Any) -> None:
    times = pd.read_parquet(study["folder"] / "run" / "times.parquet")
    cells = pd.read_parquet(study["folder"] / "run" / "cells.parquet")
    found = pd.read_parquet(study["folder"] / "a5" / "e5_statistics.parquet").set_index(["claim", "statistic"])
    paper = times[times["arm"].isin(["reference", "paper"])].pivot(index=["document", "repeat"], columns="policy", values="wall")
    for name in ("quality_first", "speed_first"):
        expected = np.exp(np.log(paper["fetch_all"] / paper[name]).mean())
        assert found.loc[("C5", f"ratio of {name}"), "estimate"] == pytest.approx(expected)
        assert found.loc[("C5", f"ratio of {name}"), "clusters"] == 8
    totals = cells[cells["arm"] != "protected"].groupby("policy")[["nll", "scored"]].sum()
    rise = np.expm1((totals.loc["substitute_all", "nll"] - totals.loc["fetch_all", "nll"]) / totals.loc["fetch_all", "scored"])
    assert found.loc[("C5", "D of substitute_all"), "estimate"] == pytest.approx(rise) and rise > 0
    change = (totals.loc["quality_first", "nll"] - totals.loc["rule_015", "nll"]) / totals.loc["rule_015", "scored"]
    assert found.loc[("C5a", "NLL difference"), "estimate"] == pytest.approx(change)
    protected = cells[cells["arm"] == "protected"].groupby("policy")[["nll", "mass"]].sum()
    # The stand-in's loss is its mass on the same tokens; the first tokens count in one of the two only.
    assert found.loc[("C2 (engine)", "r of mass"), "estimate"] == pytest.approx(protected["nll"].corr(protected["mass"])) and (
        found.loc[("C2 (engine)", "r of mass"), "estimate"] > 0.95
    )
    shown = pd.read_parquet(study["folder"] / "a5" / "e5_times.parquet")
    row = shown[(shown["policy"] == "fetch_all") & (shown["arm"] == "reference")].set_index("measure")["estimate"]
    own = times[(times["policy"] == "fetch_all") & (times["arm"] == "reference")]
    assert row["wall"] == pytest.approx(1e3 * own["wall"].sum() / own["tokens"].sum()) and row["speed"] == 1


def test_the_model_predicts_its_own_times(study: Any) -> None:
    table = read_table(study["folder"] / "a5" / "e5_prediction.parquet")
    assert table.labels.time == "predicted"
    frame = table.frame
    assert len(frame) == 12 and set(frame.loc[frame["role"] == "fit", "policy"]) == {"fetch_all", "substitute_all"}
    np.testing.assert_allclose(frame["predicted_bytes"], frame["measured_bytes"])
    plain = frame["policy"].isin(["fetch_all", "first_choice", "rule_015"])
    np.testing.assert_allclose(frame.loc[plain, "calibrated"], frame.loc[plain, "measured"], rtol=1e-9)
    # The stand-in decodes one token less than the trace holds, so what would land at the last token does not slow the one before.
    np.testing.assert_allclose(frame[["calibrated", "fitted"]], frame[["measured"]].to_numpy() * [[1, 1]], rtol=1e-2)


def test_a_fit_is_judged_on_other_cells() -> None:
    frame = pd.DataFrame({
        "role": ["fit", "fit", "held out", "held out"], "computing": [1.0, 1.0, 1.0, 1.0], "waiting": [0.0, 4.0, 2.0, 1.0],
        "measured": [2.0, 4.0, 3.0, 5.0], "measured_bytes": [0.0, 4, 2, 1], "predicted_bytes": [0.0, 4, 1, 1],
    })  # fmt: skip
    found = with_fit(frame)  # 2 x computing + 0.5 x waiting
    assert found["factor_computing"].iloc[0] == pytest.approx(2) and found["factor_waiting"].iloc[0] == pytest.approx(0.5)
    assert found["error_fitted"].tolist() == pytest.approx([0, 0, 0, -0.5])
    assert summary(found) == pytest.approx({"calibrated": 0.3, "fitted": 0.25, "bytes": 0.25, "cells": 2})


def test_other_rules_are_refused(study: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("cells.parquet", "times.parquet"):
        (folder / name).write_bytes((study["folder"] / "run" / name).read_bytes())
    run = read_json(study["folder"] / "run" / "run.json")
    write_json(folder / "run.json", {**run, "config": {**run["config"], "e5_lock": "0" * 64}})
    with pytest.raises(UserError, match="run under other rules than those locked now"):
        analyse(study, folder, tmp_path / "a5")


@pytest.fixture(scope="module")
def page(study: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the report of the stand-in's study, with another host's results in it."""
    folder = study["folder"]
    compared = pd.DataFrame({
        "policy": ["fetch_all", "fetch_all"], "capacity": 16, "layers": 4, "differing": [2, 1], "near_ties": [1, 1], "following": [1, 0],
        "unexplained": 0, "token_layers": 100, "other_sets": [3, 1], "eps": [1e-5, 2e-5], "nll_engine": [100.0, 102.0], "nll_emulator": [100.0, 100.0],
        "scored": 50,
    })  # fmt: skip
    rounds = pd.DataFrame({name: [1e-4, 2e-4, 3e-4] for name in ("compute_s", "read_s")} | {"read_bytes_per_s": [1e8, 2e8, 3e8]})
    for stage, name, frame, clock in (
        ("compare_engine", "e5_agreement", compare.summarize(compared), "none"),
        ("calibrate_host", "calibration", calibrate.summarize(rounds, 50), "measured"),
    ):
        labels = Labels("random_weights", "own", clock, "this_host", "exploratory", {"documents": 2})
        written = write_table(folder / stage / f"{name}.parquet", frame, labels, {})
        write_run(
            folder / stage, stage=stage, experiment="test", name=stage, config={}, source_hash="code", inputs=[], outputs=written, metrics={}, timings={},
            labels=labels, started=datetime.now(UTC),
        )  # fmt: skip
    tables = sorted((folder / "a5").glob("*.parquet"))
    figures.run({"report": {"quick": True}}, tables=tables, out=folder / "figures", context=CONTEXT)
    cfg = {"report": {"quick": False}, "model": {"substrate": "random_weights", "name": "tiny"}, "not_measured": {}}
    judge.run(cfg, out=folder / "claims", context=CONTEXT, statistics=[folder / "a5" / "e5_statistics.parquet"], claims=CLAIMS, e5=RULES)
    added = other_host(folder / "a5", tmp_path_factory.mktemp("other"))
    out = tmp_path_factory.mktemp("page") / "reports" / "test"
    runs = [folder / name / "run.json" for name in ("a5", "compare_engine", "calibrate_host", "claims", "figures")]
    whole = {**study["config"], "policies": {}, "corpus": {"name": "invented"}, "not_measured": {}}
    report.run(whole, runs=runs, out=out, context=CONTEXT, added=[added])
    return out


def other_host(made: Path, folder: Path) -> Path:
    """The study as if another machine had measured it, added to a project in ``folder``; its ``added.json``."""
    theirs = folder / "theirs" / "results" / "study" / "analyze_e5" / "tiny" / "invented"
    theirs.mkdir(parents=True)
    table = read_table(made / "e5_statistics.parquet")
    write_table(theirs / "e5_statistics.parquet", table.frame, replace(table.labels, host="elsewhere"), table.sources)
    run = read_json(made / "run.json")
    digest = sha256_file(theirs / "e5_statistics.parquet")
    write_json(
        theirs / "run.json",
        {**run, "labels": {**run["labels"], "host": "elsewhere"}, "outputs": {"results/x/e5_statistics.parquet": digest}},
    )
    root = folder / "mine"
    for name in ("prereg/LOCK.json", "prereg/e5.yaml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes((ROOT / name).read_bytes())
    return hosts.add_host(root, folder / "theirs" / "results" / "study", "test") / hosts.ADDED


def test_the_page_tells_speed_loss_and_the_other_host(page: Path) -> None:
    text = " ".join(re.sub(r"<[^>]+>", " ", (page / "index.html").read_text()).split())
    assert "Times are bound by latency: reads of 12 KiB" in text and "Host: this_host" in text
    assert "E5 on host elsewhere" in text and "1 first differ" not in text and "2 first differ at a near-tie, 1 after" in text
    described = read_json(page / "tables" / "e5_claims_elsewhere.json")
    assert described["labels"]["host"] == "elsewhere" and read_json(page / "tables" / "e5_claims.json")["labels"]["host"] == "this_host"
    for name, clock in (("e5_front", "measured"), ("e5_parts", "measured"), ("e5_prediction", "predicted")):
        assert read_json(page / "figures" / f"{name}.json")["labels"]["time"] == clock


def test_claims_of_a_model_without_weights_are_not_testable(study: Any, page: Path) -> None:
    claims = pd.read_parquet(study["folder"] / "claims" / "claims.parquet").set_index("claim")
    assert claims.loc["C5", "verdict"] == "not testable here" and claims.loc["C2 (engine)", "verdict"] != "not run"
    assert claims.loc["C1", "verdict"] == "not run" and list(claims.index).index("C2 (engine)") == list(claims.index).index("C2") + 1


def test_a_host_of_this_name_or_changed_results_are_not_added(study: Any, page: Path, tmp_path: Path) -> None:
    added = other_host(study["folder"] / "a5", tmp_path)
    assert hosts.read_added(added)[0] == "elsewhere"
    root, theirs = tmp_path / "mine", tmp_path / "theirs" / "results" / "study"
    own = root / "results" / "test" / "analyze_e5" / "a" / "b" / "run.json"
    own.parent.mkdir(parents=True)
    write_json(own, {"labels": {"host": "elsewhere"}})
    with pytest.raises(UserError, match="the name of this one"):
        hosts.add_host(root, theirs, "test")
    own.unlink()
    table = next(theirs.rglob("*.parquet"))
    table.write_bytes(table.read_bytes() + b"x")
    with pytest.raises(UserError, match=r"not the file that run\.json beside it records"):
        hosts.add_host(root, theirs, "test")
    with pytest.raises(UserError, match="0 runs of analyze_e5, one is needed"):
        hosts.add_host(root, tmp_path / "mine", "test")
