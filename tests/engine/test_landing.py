"""Admissions land at their due token, or by the clock: then the log's landings replay the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expertmiss._core import Stepper
from expertmiss.engine.session import Engine, EngineOptions
from tests.engine.random_gguf import Shape, make, tokens
from tests.engine.test_policies import named

# A token computes far less than its admissions read (up to 8 experts of 768 KiB).
SLOW = Shape(experts=16, top_k=4, hidden=256, width=256, layers=2)
SUBSTITUTE = 2


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("slow") / "model.gguf", SLOW)


def run(engine: Engine, policy: dict[str, Any], capacity: int, text: np.ndarray, landing: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Decision log and what was kept. By the clock a slow disk lands little, so the text is repeated until something has landed."""
    engine.start(policy, capacity, log=True, keep=True, check=True, landing=landing)
    for _ in range(8):
        for token in text:
            engine.step(token)
        if landing == "scheduled" or engine.traffic()["landings"] > 3:
            break
    assert engine.verify() > 0
    return engine.take_log(), engine.take_kept()


def replayed(
    engine: Engine, policy: dict[str, Any], capacity: int, kept: dict[str, Any], landings: dict[str, Any] | None
) -> dict[str, Any]:
    """The core alone on the same router logits, with a log's landings or its own."""
    stepper = Stepper(engine.router, policy, capacity, log=True, check=True)
    stepper.reset(0)
    for t, token in enumerate(kept["logits"]):
        for layer, z in enumerate(token):
            now = None
            if landings is not None:
                now = landings["expert"][(landings["t"] == t) & (landings["layer"] == layer)].tolist()
            stepper.step(layer, np.ascontiguousarray(z), now)
    return stepper.take_log()


def lags(log: dict[str, Any]) -> np.ndarray:
    """Tokens from each expert's admission (`every_miss`: its first substitution since it last landed) to its landing."""
    calls, landings = log["calls"], log["landings"]
    found = []
    last: dict[tuple[int, int], int] = {}
    for t, layer, expert in zip(landings["t"], landings["layer"], landings["expert"], strict=True):
        asked = (calls["layer"] == layer) & (calls["expert"] == expert) & (calls["verdict"] == SUBSTITUTE)
        asked &= (calls["t"] < t) & (calls["t"] >= last.get((layer, expert), 0))
        found.append(t - calls["t"][asked].min())
        last[layer, expert] = t
    return np.array(found)


@pytest.mark.parametrize(("name", "delay"), [("quality_first", 9), ("substitute_all", None)])
def test_timed_landings_replay_from_the_log(name: str, delay: int | None, slow: Path) -> None:
    """Slot for slot; and the clock did decide: due tokens alone lead elsewhere."""
    policy, text = named(name), tokens(SLOW, 60)
    if delay is not None:
        policy["admission"] = {**policy["admission"], "beta": 0.1, "delay": delay}
    engine = Engine(slow, EngineOptions(context=512, io_threads=1))
    log, kept = run(engine, policy, 6, text, "timed")
    assert len(log["landings"]["t"]) > 0
    again = replayed(engine, policy, 6, kept, log["landings"])
    for part in ("calls", "landings"):
        for column, values in again[part].items():
            np.testing.assert_array_equal(log[part][column], values, err_msg=f"{part}.{column}")
    scheduled = replayed(engine, policy, 6, kept, None)
    assert [row.tolist() for row in scheduled["landings"].values()] != [row.tolist() for row in log["landings"].values()]


def test_when_admissions_land(slow: Path) -> None:
    """Scheduled: the token after. Timed: never sooner, later where the disk needs longer; from memory the token after."""
    text, found = tokens(SLOW, 60), {}
    for store, landing in (("direct", "scheduled"), ("direct", "timed"), ("mapped", "timed")):
        engine = Engine(slow, EngineOptions(context=512, io_threads=1, store=store))
        log, _ = run(engine, {**named("substitute_all"), "initial": "random"}, 6, text, landing)
        assert log["calls"]["verdict"].max() <= SUBSTITUTE and (log["calls"]["verdict"] != 1).all()  # nothing was fetched
        found[store, landing] = lags(log)
        assert len(found[store, landing]) > (0 if (store, landing) == ("direct", "timed") else 20)  # a slow disk lands few
    assert (found["direct", "scheduled"] == 1).all() and (found["mapped", "timed"] == 1).all()
    assert found["direct", "timed"].min() >= 1 and found["direct", "timed"].max() > 1


def test_timed_waits_only_for_misses(slow: Path) -> None:
    """With every miss substituted nothing is fetched, so a token never waits for a read; scheduled ones do."""
    text = tokens(SLOW, 60)
    waited = {}
    for landing in ("scheduled", "timed"):
        engine = Engine(slow, EngineOptions(context=64, io_threads=1))
        engine.start({**named("substitute_all"), "initial": "random"}, 6, landing=landing)
        for token in text:
            engine.step(token)
        times = engine.take_times()
        assert times["fetch_bytes"].sum() == 0 < times["admission_bytes"].sum()
        waited[landing] = times["waiting"].sum() / times["wall"].sum()
    assert waited["timed"] < 0.05 < waited["scheduled"]


def test_upload_cap_by_the_clock(model_file: Callable[..., Path]) -> None:
    text = tokens(Shape(), 60)
    engine = Engine(model_file(), EngineOptions(context=64))
    log, _ = run(engine, {**named("substitute_all"), "upload_cap": 1}, 6, text, "timed")
    landings = log["landings"]
    places = list(zip(landings["t"], landings["layer"], strict=True))
    assert len(places) > 50 and len(set(places)) == len(places)
