"""The command-line simulator: totals, and one step told so that a person can check it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from expertmiss.config.compose import load_policy
from expertmiss.errors import UserError
from expertmiss.policies import request_counts, simulate
from expertmiss.simulate.explain import explain_step, simulate_one
from expertmiss.traces.format import Trace, write_trace
from tests.traces.traces_for_tests import random_trace

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=[16, 10], ids=["full depth", "depth 10 of 16"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("trace") / "trace.safetensors"
    write_trace(file, *random_trace(seed=4, depth=request.param))
    return file


@pytest.mark.parametrize("name", ["quality_first", "rule_015", "substitute_all", "cache_prior", "drop_cold"])
def test_every_explained_step_agrees_with_the_simulators_log(path: Path, name: str) -> None:
    policy = load_policy(ROOT, name)
    trace = Trace.open(path)
    log = simulate(trace, policy, 6, counts=request_counts(trace), log=True)["log"]["calls"]
    for t in (0, 1, 7, 19):
        text = explain_step(path, policy, 6 / 16, path, document=1, token=t, layer=1)
        rows = (log["document"] == 1) & (log["t"] == t) & (log["layer"] == 1)
        told = re.findall(
            r"^ +(\d+) (hit|fetch|substitute|drop)\w* *(?:by (\d+) *)?(?:evicts (\d+))?", text.split("3. to 6.")[1].split("8.")[0], re.M
        )
        assert [int(expert) for expert, *_ in told] == log["expert"][rows].tolist()
        assert [int(by or -1) for _, _, by, _ in told] == log["substitute"][rows].tolist()
        assert [int(victim or -1) for *_, victim in told] == log["victim"][rows].tolist()


def test_totals_are_those_of_the_simulator(path: Path) -> None:
    policy = load_policy(ROOT, "rule_015")
    trace = Trace.open(path)
    meters = simulate(trace, policy, 6, counts=request_counts(trace))
    text = simulate_one(path, policy, 6 / 16, path)
    assert re.search(rf"^  hits +{meters['hits'].sum()} ", text, re.M) and re.search(
        rf"^  substituted +{meters['substituted'].sum()} ", text, re.M
    )


def test_the_decision_log_is_written_as_tables(path: Path, tmp_path: Path) -> None:
    policy = {**load_policy(ROOT, "speed_first"), "admission": {"name": "background", "beta": 0.3, "delay": 2}}
    simulate_one(path, policy, 6 / 16, path, tmp_path)
    calls, landings = pd.read_parquet(tmp_path / "calls.parquet"), pd.read_parquet(tmp_path / "landings.parquet")
    trace = Trace.open(path)
    meters = simulate(trace, policy, 6, counts=request_counts(trace))
    verdicts = calls["verdict"].value_counts()
    assert len(calls) == meters["calls"].sum() and len(landings) == meters["landings"].sum() > 0
    assert (verdicts["hit"], verdicts["fetch"], verdicts["substitute"]) == tuple(
        meters[name].sum() for name in ("hits", "fetches", "substituted")
    )
    mass = calls.loc[calls["verdict"] == "substitute", "weight"].sum()
    assert abs(mass - meters["mass"].sum()) < 1e-9


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        ((9, 0, 0), {}, "document 9 is not in the trace; its documents are 0, 1, 2"),
        ((0, 20, 0), {}, r"token 20 is not in document 0 \(0 to 19\)"),
        ((0, 0, 2), {}, r"layer 2 is not in the trace \(0 to 1\)"),
        ((0, 0, 0), {"scope": "global"}, "shared by all"),
    ],
)
def test_places_that_do_not_exist_are_refused(path: Path, place: tuple[int, int, int], change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        explain_step(path, {**load_policy(ROOT, "fetch_all"), **change}, 0.5, path, *place)


def test_a_warm_start_without_calibration_is_refused(path: Path) -> None:
    with pytest.raises(UserError, match="--calibration"):
        simulate_one(path, load_policy(ROOT, "fetch_all"), 0.5, None)
