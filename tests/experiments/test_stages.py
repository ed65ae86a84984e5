"""The stages of E1, E2 and E4 on a tiny random model and invented text: tables, resume, and inputs that must be refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

from expertmiss.emulate import stage as emulation
from expertmiss.errors import UserError
from expertmiss.experiments import e4, judge
from expertmiss.experiments.plans import load_claims
from expertmiss.files import read_json, write_json
from expertmiss.policies import request_counts, simulate
from expertmiss.stats.tables import read_table, write_table
from expertmiss.traces import capture
from expertmiss.traces.format import Trace
from tests.experiments.tiny_study import CLAIMS, CONTEXT, RULES, STUDIES, analyse, emulate, make_setting, statistics
from tests.models.tiny import save_tiny


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("experiments") / "results"
    folder.mkdir()
    return make_setting(folder)


@pytest.fixture(scope="module")
def emulated(setting: dict[str, Any]) -> Path:
    """Folders ``e1``, ``e2``, ``e4`` of emulated policies."""
    for study in STUDIES:
        emulate(setting, study, setting["folder"] / study)
    return setting["folder"]


@pytest.fixture(scope="module")
def analysed(emulated: Path, setting: dict[str, Any]) -> Path:
    analyse(setting)
    return emulated


def test_capacity_does_not_touch_the_lossless_reference_and_every_part_adds_up(emulated: Path) -> None:
    for study in ("e1", "e2", "e4"):
        cells = pd.read_parquet(emulated / study / "cells.parquet")
        reference = cells[cells["arm"] == "reference"]
        assert (reference.groupby("document")["nll"].nunique() == 1).all()
        assert (reference[["substituted", "dropped", "mass"]] == 0).all(axis=None)
        per_token = load_file(emulated / study / "nll.safetensors")["nll"][:, :, emulation.FIRST_TARGET :].sum(axis=2)
        totals = cells.pivot(index="row", columns="document", values="nll").to_numpy()
        np.testing.assert_allclose(per_token, totals, rtol=1e-5)
        plain = cells[~cells["miss_rule"].isin(["cache_prior", "max_rank"])]  # re-routing rules count hits and fetches on X
        answered = plain[["hits", "fetches", "substituted", "dropped", "fallback_fetches", "fallback_drops"]].sum(axis=1)
        assert (answered == plain["calls"]).all()


def test_full_strength_fires(emulated: Path) -> None:
    cells = pd.read_parquet(emulated / "e1" / "cells.parquet")
    wide = cells.pivot_table(index="document", columns="policy", values="nll")
    assert (wide["substitute_all"] != wide["fetch_all"]).all()
    assert cells.loc[cells["policy"] == "substitute_all", "substituted"].min() > 0


def test_the_loss_by_rank_adds_up_to_the_change_of_nll(emulated: Path) -> None:
    cells = pd.read_parquet(emulated / "e1" / "cells.parquet")
    split = pd.read_parquet(emulated / "e1" / "split.parquet").groupby(["row", "document"])["loss"].sum()
    base = cells[cells["row"] == 0].set_index("document")["nll"]
    change = cells.assign(change=cells["nll"] - cells["document"].map(base)).set_index(["row", "document"])["change"]
    np.testing.assert_allclose(split.reindex(change.index, fill_value=0.0), change, atol=1e-9)


def test_the_open_loop_is_the_simulator_on_a_lossless_trace(emulated: Path, setting: dict[str, Any], tmp_path: Path) -> None:
    capture.run(setting["recording"], out=tmp_path, context=CONTEXT, tokens=emulated / "tokens.parquet", split="exploratory")
    trace = Trace.open(tmp_path / "trace.safetensors")
    counts = request_counts(Trace.open(emulated / "calibration" / "trace.safetensors"))
    opened = pd.read_parquet(emulated / "e2" / "open_loop.parquet")
    rule = {
        "name": "x",
        "miss_rule": {"name": "threshold", "tau": 0.15},
        "eviction": {"name": "lru"},
        "admission": {"name": "fetched_only"},
    }
    rows = opened[opened["policy"] == "threshold_015"].set_index("document")
    meters = simulate(trace, rule, int(rows["capacity"].iloc[0]), counts=counts)
    shared = [(place, document) for place, document in enumerate(meters["document"]) if document in rows.index]
    assert len(shared) == 5
    for place, document in shared:
        assert meters["hits"][place].sum() == rows.loc[document, "hits"]
        assert meters["substituted"][place].sum() == rows.loc[document, "substituted"]


def test_open_and_closed_loop_agree_without_substitution_and_differ_with_it(emulated: Path) -> None:
    closed, opened = (pd.read_parquet(emulated / "e1" / f"{name}.parquet") for name in ("cells", "open_loop"))
    gap = (closed["hits"] - opened["hits"]).groupby(closed["policy"]).apply(lambda values: np.abs(values).sum())
    assert gap["fetch_all"] == 0 and gap["substitute_all"] > 0


def test_rows_in_chunks_give_the_same_numbers(emulated: Path, setting: dict[str, Any], tmp_path: Path) -> None:
    emulate(setting, "e1", tmp_path, emulate={**setting["config"]["emulate"], "rows": 3})
    whole, chunks = (pd.read_parquet(folder / "cells.parquet") for folder in (emulated / "e1", tmp_path))
    np.testing.assert_allclose(whole["nll"], chunks["nll"], rtol=1e-5)
    assert read_json(tmp_path / "run.json")["metrics"]["reference_spread"] < 1e-3


def test_a_killed_run_resumes_at_the_first_missing_document(
    emulated: Path, setting: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = emulation._Passes.run
    done: list[int] = []

    def interrupted(self: Any, tokens: Any, document: int) -> Any:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(document)
        return passes(self, tokens, document)

    monkeypatch.setattr(emulation._Passes, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        emulate(setting, "e2", tmp_path)
    assert not (tmp_path / "cells.parquet").exists() and not (tmp_path / "run.json").exists()
    again: list[int] = []
    monkeypatch.setattr(emulation._Passes, "run", lambda self, tokens, document: again.append(document) or passes(self, tokens, document))
    emulate(setting, "e2", tmp_path)
    assert not set(done) & set(again) and len(done) + len(again) == 5
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "cells.parquet"), pd.read_parquet(emulated / "e2" / "cells.parquet"))


def test_a_kill_while_the_run_is_recorded_loses_no_document(
    setting: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(emulation, "write_run", killed)
        emulate(setting, "e2", tmp_path)
    assert len(list((tmp_path / ".parts").rglob("*.safetensors"))) == 5
    again: list[int] = []
    monkeypatch.setattr(emulation._Passes, "run", lambda self, tokens, document: again.append(document))
    emulate(setting, "e2", tmp_path)
    assert again == [] and not list((tmp_path / ".parts").rglob("*.safetensors"))


def test_closed_and_open_loop_are_labelled_apart(emulated: Path) -> None:
    for name, note in (("cells", "closed loop"), ("open_loop", "open loop"), ("split", "closed loop")):
        assert list(read_table(emulated / "e1" / f"{name}.parquet").labels.notes) == [note]


def test_statistics_agree_with_the_cells(analysed: Path) -> None:
    cells = pd.read_parquet(analysed / "e1" / "cells.parquet")
    totals = cells[cells["residency"] == 0.25].groupby("policy")[["nll", "scored", "substituted"]].sum()
    rise = {
        name: np.expm1((totals.loc[name, "nll"] - totals.loc["fetch_all", "nll"]) / totals.loc[name, "scored"])
        for name in ("threshold_0.15", "substitute_all")
    }
    found = pd.read_parquet(analysed / "a1" / "e1_statistics.parquet").set_index("statistic")["estimate"]
    assert found["loss of substitute_all"] == pytest.approx(rise["substitute_all"])
    assert found["loss spared"] == pytest.approx(1 - rise["threshold_0.15"] / rise["substitute_all"])
    measures = pd.read_parquet(analysed / "a1" / "e1_measures.parquet")
    row = measures[(measures["measure"] == "perplexity_change") & (measures["policy"] == "fetch_all")]
    assert (row[["estimate", "low", "high"]] == 0).all(axis=None)
    split = pd.read_parquet(analysed / "a1" / "e1_split.parquet")
    sums = split.groupby(["policy", "residency", "by", "measure"])["estimate"].sum()
    np.testing.assert_allclose(sums[sums.notna() & (sums != 0)], 1.0)


def test_e2_statistics_agree_with_the_cells(analysed: Path) -> None:
    cells = pd.read_parquet(analysed / "e2" / "cells.parquet")
    totals = cells.groupby(["arm", "family", "policy"])[["nll", "mass", "substituted", "fetches", "heaviest"]].sum()
    found = pd.read_parquet(analysed / "a2" / "e2_statistics.parquet").set_index(["claim", "statistic"])["estimate"]
    for name, column in (("mass", "mass"), ("share of calls", "substituted"), ("fetches", "fetches"), ("heaviest weight", "heaviest")):
        assert found["C2", f"r of {name}"] == pytest.approx(totals.loc["protected", "nll"].corr(totals.loc["protected", column]))
    rest = totals.loc["protected"].drop("max_rank")
    assert found["C2", "r of mass without max_rank"] == pytest.approx(rest["nll"].corr(rest["mass"]))
    ahead = found["C2", "r of mass"] - abs(found["C2", "r of fetches"])
    assert found["C2", "r of mass minus |r| of fetches"] == pytest.approx(ahead)
    other = totals.loc["unprotected"].droplevel("family")
    assert found["C2b", "r of mass"] == pytest.approx(other["nll"].corr(other["mass"]))
    other = other.drop("score_margin_05")
    assert found["C2b", "r of mass without score_margin_05"] == pytest.approx(other["nll"].corr(other["mass"]))


def test_choosers_gaps_and_repeats_agree_with_the_cells(analysed: Path) -> None:
    cells, opened = (pd.read_parquet(analysed / "e1" / f"{name}.parquet") for name in ("cells", "open_loop"))
    nll = cells[cells["residency"] == 0.25].groupby("policy")[["nll", "scored"]].sum()
    choosers = pd.read_parquet(analysed / "a1" / "e1_choosers.parquet").set_index("policy")
    for policy, row in choosers.iterrows():
        change = (nll.loc[policy, "nll"] - nll.loc[row["base"], "nll"]) / nll.loc[policy, "scored"]
        assert row["estimate"] == pytest.approx(np.expm1(change)) and row["base"] == policy.split("/")[0]
    gap = pd.read_parquet(analysed / "a1" / "e1_gap.parquet")
    row = gap[(gap["policy"] == "substitute_all") & (gap["measure"] == "hit_rate")].iloc[0]
    sums = [frame[frame["policy"] == "substitute_all"][["hits", "calls"]].sum() for frame in (cells, opened)]
    assert (
        row["estimate"] == pytest.approx(sums[0]["hits"] / sums[0]["calls"] - sums[1]["hits"] / sums[1]["calls"]) and row["estimate"] != 0
    )
    e4_cells = pd.read_parquet(analysed / "e4" / "cells.parquet").groupby("policy")[["reswaps", "substituted"]].sum()
    repeats = pd.read_parquet(analysed / "a4" / "e4_reswaps.parquet").set_index("policy")["estimate"]
    for policy, share in repeats.items():
        assert share == pytest.approx(e4_cells.loc[policy, "reswaps"] / e4_cells.loc[policy, "substituted"])


def test_c4_effects_come_from_the_right_rows(analysed: Path) -> None:
    cells = pd.read_parquet(analysed / "e4" / "cells.parquet")
    totals = cells.groupby("policy")[["nll", "scored"]].sum()
    effects = pd.read_parquet(analysed / "a4" / "e4_effects.parquet").set_index("policy")["estimate"]
    for base in ("threshold_015", "first_choice"):
        expected = (totals.loc[f"{base}/lfu/background_0.5", "nll"] - totals.loc[f"{base}/lfu/fetched_only", "nll"]) / totals[
            "scored"
        ].iloc[0]
        assert effects[f"{base}/lfu/background_0.5"] == pytest.approx(expected)


def test_quick_runs_are_not_judged_and_full_ones_say_why(analysed: Path, tmp_path: Path) -> None:
    for quick, expected in (
        (True, {"quick run: not judged", "not run", "on its own page"}),
        (False, {"inconclusive", "not run", "on its own page"}),
    ):
        cfg = {"report": {"quick": quick}, "model": {"substrate": "random_weights", "name": "tiny"}, "not_measured": {}}
        judge.run(cfg, out=tmp_path / "results" / str(quick), context=CONTEXT, statistics=statistics(analysed), claims=CLAIMS, e5=RULES)
        table = pd.read_parquet(tmp_path / "results" / str(quick) / "claims.parquet")
        assert set(table["verdict"]) == expected
        assert not table["verdict"].str.contains("reproduced").any()


def test_other_claims_than_the_locked_ones_are_refused_wherever_they_are_given(
    analysed: Path, setting: dict[str, Any], tmp_path: Path
) -> None:
    eased = tmp_path / "claims.yaml"
    eased.write_text(CLAIMS.read_text().replace("min_clusters: 40", "min_clusters: 1"))
    cfg = {"report": {"quick": False}, "model": {"substrate": "random_weights", "name": "tiny"}, "not_measured": {}}
    with pytest.raises(UserError, match="not a file that plan 'claims' locked"):
        judge.run(cfg, out=tmp_path, context=CONTEXT, statistics=statistics(analysed), claims=eased, e5=RULES)
    folder = analysed / "e4"
    with pytest.raises(UserError, match="not a file that plan 'claims' locked"):
        e4.run(
            {"stats": setting["config"]["stats"]}, out=tmp_path, context=CONTEXT, cells=folder / "cells.parquet",
            open_loop=folder / "open_loop.parquet", nll=folder / "nll.safetensors", claims=eased,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("column", "value", "message"), [("confidence", 0.5, "coverage 0.5"), ("split", "pilot", "judged on 'exploratory'")]
)
def test_statistics_on_other_terms_are_refused(analysed: Path, tmp_path: Path, column: str, value: Any, message: str) -> None:
    source = analysed / "a2" / "e2_statistics.parquet"
    write_json(tmp_path / "run.json", read_json(source.parent / "run.json"))
    changed = read_table(source)
    write_table(tmp_path / source.name, changed.frame.assign(**{column: value}), changed.labels, changed.sources)
    cfg = {"report": {"quick": False}, "model": {"substrate": "random_weights", "name": "tiny"}, "not_measured": {}}
    with pytest.raises(UserError, match=message):
        judge.run(cfg, out=tmp_path / "out", context=CONTEXT, statistics=[tmp_path / source.name], claims=CLAIMS, e5=RULES)


def test_too_few_residents_are_not_judged(analysed: Path, tmp_path: Path) -> None:
    source = analysed / "a2" / "e2_statistics.parquet"
    write_json(tmp_path / "run.json", read_json(source.parent / "run.json"))
    changed = read_table(source)
    write_table(tmp_path / source.name, changed.frame.assign(few_residents=True, clusters=99), changed.labels, changed.sources)
    cfg = {"report": {"quick": False}, "model": {"substrate": "random_weights", "name": "tiny"}, "not_measured": {}}
    judge.run(cfg, out=tmp_path / "results", context=CONTEXT, statistics=[tmp_path / source.name], claims=CLAIMS, e5=RULES)
    table = pd.read_parquet(tmp_path / "results" / "claims.parquet").set_index("claim")
    assert set(table.loc[["C2", "C2a", "C2b"], "verdict"]) == {"not testable here"}


def test_the_first_targets_left_out_are_the_claims_own() -> None:
    assert load_claims(CLAIMS)["first_targets_left_out"] == emulation.FIRST_TARGET


def test_short_pieces_are_refused(emulated: Path, setting: dict[str, Any], tmp_path: Path) -> None:
    tensors = load_file(emulated / "e4" / "nll.safetensors")
    marks = np.zeros_like(tensors["topic_change"])
    marks[:, 100], marks[:, 200] = 2, 1
    save_file({**tensors, "topic_change": marks}, tmp_path / "nll.safetensors")
    folder = emulated / "e4"
    with pytest.raises(UserError, match=r"raise corpus\.shift_piece_tokens above 129"):
        e4.run(
            {"stats": setting["config"]["stats"]}, out=tmp_path / "out", context=CONTEXT, cells=folder / "cells.parquet",
            open_loop=folder / "open_loop.parquet", nll=tmp_path / "nll.safetensors", claims=CLAIMS,
        )  # fmt: skip


def test_statistics_made_under_other_claims_are_refused(analysed: Path, tmp_path: Path) -> None:
    path = tmp_path / "e2_statistics.parquet"
    path.write_bytes((analysed / "a2" / "e2_statistics.parquet").read_bytes())
    made = read_json(analysed / "a2" / "run.json")
    write_json(tmp_path / "run.json", {**made, "config": {**made["config"], "claims_lock": "0" * 64}})
    cfg = {"report": {"quick": False}, "model": {"substrate": "random_weights", "name": "tiny"}, "not_measured": {}}
    with pytest.raises(UserError, match="made under other claims than those locked now"):
        judge.run(cfg, out=tmp_path / "out", context=CONTEXT, statistics=[path], claims=CLAIMS, e5=RULES)


def test_another_model_s_calibration_and_foreign_tokens_are_refused(setting: dict[str, Any], tmp_path: Path) -> None:
    other = tmp_path / "other"
    save_tiny("qwen3_moe", other, seed=5, num_experts=64)
    with pytest.raises(UserError, match="captured with another model"):
        emulate(setting, "e2", tmp_path / "out", model={**setting["cfg"]["model"], "path": str(other)})
    with pytest.raises(UserError, match="no document of split 'pilot'"):
        emulate(setting, "e2", tmp_path / "out", e2={**setting["config"]["e2"], "split": "pilot"})
    tokens = pd.read_parquet(setting["folder"] / "tokens.parquet")
    tokens["tokens"] = [[99_999, *row[1:]] for row in tokens["tokens"]]
    tokens.to_parquet(tmp_path / "foreign.parquet")
    with pytest.raises(UserError, match="does not fit the model's vocabulary"):
        emulation.run(
            {**setting["cfg"], "e2": setting["config"]["e2"]}, out=tmp_path / "out", context=CONTEXT, tokens=tmp_path / "foreign.parquet",
            calibration=setting["folder"] / "calibration" / "trace.safetensors", claims=CLAIMS, study="e2",
        )  # fmt: skip


def test_streams_without_changes_are_refused(emulated: Path, setting: dict[str, Any], tmp_path: Path) -> None:
    tensors = load_file(emulated / "e4" / "nll.safetensors")
    save_file({**tensors, "topic_change": np.zeros_like(tensors["topic_change"])}, tmp_path / "nll.safetensors")
    folder = emulated / "e4"
    with pytest.raises(UserError, match="without topic changes"):
        e4.run(
            {"stats": setting["config"]["stats"]}, out=tmp_path / "out", context=CONTEXT, cells=folder / "cells.parquet",
            open_loop=folder / "open_loop.parquet", nll=tmp_path / "nll.safetensors", claims=CLAIMS,
        )  # fmt: skip


def test_every_table_carries_its_labels(analysed: Path) -> None:
    for run in analysed.glob("a?/run.json"):
        made = json.loads(run.read_text())
        assert made["labels"]["substrate"] == "random_weights" and "closed loop" in made["labels"]["notes"]
        assert made["config"]["claims_lock"] != "none"
