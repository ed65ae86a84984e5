"""Slots hold the file's bytes, under many reads at once and other traffic on the same file; a wrong byte is found."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from expertmiss.engine.session import Engine, EngineOptions
from expertmiss.errors import UserError
from tests.engine.random_gguf import Shape, make, tokens
from tests.engine.test_exactness import FETCH_ALL
from tests.engine.test_policies import named

SHAPE = Shape(experts=64, top_k=8, hidden=128, width=96, layers=4)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("stress") / "model.gguf", SHAPE, "Q8_0")


def test_slots_under_stress(path: Path) -> None:
    """Two engines in two threads, one lossless at C = K, one with background admissions, and readers that drop the file's cached pages: every
    50 tokens each slot is compared with the file, and lossless logits are stock's."""
    text = tokens(SHAPE, 300)
    reference = Engine(path, EngineOptions(context=512, store="mapped"))
    reference.start_stock()
    stock = [reference.step(token).tobytes() for token in text]
    stop = threading.Event()
    problems: list[BaseException] = []
    compared: list[int] = []

    def decode(policy: dict[str, object], capacity: int, io_threads: int, exact: bool) -> None:
        try:
            engine = Engine(path, EngineOptions(context=512, io_threads=io_threads))
            engine.start(policy, capacity, check=True)
            for position, token in enumerate(text):
                logits = engine.step(token).tobytes()
                assert not exact or logits == stock[position], position
                if position % 50 == 49:
                    compared.append(engine.verify())
            assert exact or engine.traffic()["landings"] > 100
        except BaseException as problem:
            problems.append(problem)

    def disturb() -> None:
        descriptor = os.open(path, os.O_RDONLY)
        while not stop.is_set():
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            for offset in range(0, path.stat().st_size, 1 << 18):
                os.pread(descriptor, 1 << 16, offset)
        os.close(descriptor)

    threads = [
        threading.Thread(target=decode, args=(FETCH_ALL, 8, 16, True)),
        threading.Thread(target=decode, args=(named("substitute_all"), 12, 4, False)),
    ]
    disturber = threading.Thread(target=disturb)
    for thread in (*threads, disturber):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    disturber.join()
    assert not problems, problems[0]
    assert compared.count(8 * 4) == 6 and compared.count(12 * 4) == 6


@pytest.mark.parametrize("name", ["quality_first", "substitute_all"])
def test_reads_ahead_change_nothing_but_time(name: str, path: Path) -> None:
    """From the disk, admissions are read before they are due; from mapped memory they are not. Logits and decisions are the same."""
    text = tokens(SHAPE, 150)
    found = []
    for store in ("direct", "mapped"):
        engine = Engine(path, EngineOptions(context=256, store=store))
        engine.start(named(name), 12, log=True, check=True)
        losses = engine.nll(text)
        traffic, log = engine.traffic(), engine.take_log()
        assert traffic["landings"] > 0 and engine.verify() == 12 * 4
        assert (traffic["ahead"] >= traffic["landings"]) == (store == "direct")
        found.append([losses.tobytes(), *(log["calls"][column].tobytes() for column in ("verdict", "victim", "substitute"))])
    assert found[0] == found[1]


def test_a_wrong_byte_in_a_slot_is_found(path: Path, tmp_path: Path) -> None:
    """The file changes under the engine: what lies in the slots is no longer what it holds."""
    changed = tmp_path / "changed.gguf"
    data = bytearray(path.read_bytes())
    changed.write_bytes(data)
    engine = Engine(changed, EngineOptions(context=64))
    engine.start({**FETCH_ALL, "initial": "random"}, 64)
    assert engine.verify() == 64 * 4
    data[-1000] ^= 1
    with open(changed, "r+b") as stream:
        stream.write(data)
    with pytest.raises(UserError, match=r"slot \d+ does not hold the file's bytes of expert 63"):
        engine.verify()


def test_reads_are_counted(model_file: Callable[..., Path]) -> None:
    shape = Shape()
    text = tokens(shape, 100)
    engine = Engine(model_file(), EngineOptions(context=128))
    engine.start(FETCH_ALL, 6, log=True)
    for token in text:
        engine.step(token)
    traffic, expert = engine.traffic(), 3 * shape.width * shape.hidden * 4
    assert traffic["fetches"] == (engine.take_log()["calls"]["verdict"] == 1).sum()
    assert traffic["loaded_bytes"] == (traffic["fetches"] + traffic["fills"]) * expert
    assert traffic["slot_bytes"] == 6 * shape.layers * expert
    assert 0 < traffic["waiting"] < traffic["computing"]


@pytest.mark.parametrize("store", ["direct", "mapped"])
def test_every_token_says_where_its_time_went(store: str, path: Path) -> None:
    """The parts are the wall time, each is there, and every byte read is counted once, for the token that began to read it."""
    text = tokens(SHAPE, 60)
    engine = Engine(path, EngineOptions(context=128, store=store))
    expert = 3 * SHAPE.width * SHAPE.hidden * 34 // 32  # Q8_0: 32 numbers in 34 bytes
    for policy in (FETCH_ALL, named("quality_first")):
        engine.start(policy, 12, log=True)
        begin = time.perf_counter()
        engine.prefill(text[:10])
        for token in text[10:]:
            engine.step(token)
        elapsed = time.perf_counter() - begin
        times, traffic, calls = engine.take_times(), engine.traffic(), engine.take_log()["calls"]
        parts = [times[name] for name in ("compute", "waiting", "policy", "background")]
        assert all(values.shape == (50,) and values.dtype == np.float64 and (values >= 0).all() for values in parts)
        np.testing.assert_allclose(sum(parts), times["wall"], rtol=1e-12)
        assert (times["compute"] > 0).all() and (times["policy"] > 0).all() and times["wall"].sum() < elapsed
        for name in ("waiting", "policy", "background"):
            assert traffic[name] == pytest.approx(times[name].sum())
        admits = "admission" in policy
        assert ((times["background"] > 0).any(), (times["admission_bytes"] > 0).any()) == (True, admits)
        assert times["waiting"].sum() > 0 and times["fetch_bytes"].dtype == times["admission_bytes"].dtype == np.int64
        fetched = ((calls["verdict"] == 1) | (calls["verdict"] == 4)).reshape(50, -1).sum(1)
        if not admits:
            np.testing.assert_array_equal(times["fetch_bytes"], fetched * expert)
            assert traffic["loaded_bytes"] == times["fetch_bytes"].sum()
        else:  # a fetch may be served from a read that began as an admission's; an admission may never be used
            assert (times["fetch_bytes"] <= fetched * expert).all()
            assert (times["fetch_bytes"] + times["admission_bytes"]).sum() >= traffic["loaded_bytes"] > times["fetch_bytes"].sum()
        assert all(len(values) == 0 for values in engine.take_times().values())


def test_stock_tokens_only_compute(path: Path) -> None:
    engine = Engine(path, EngineOptions(context=128, store="mapped"))
    engine.start_stock()
    engine.nll(tokens(SHAPE, 20))
    times = engine.take_times()
    assert len(times["wall"]) == 19 and (times["wall"] > 0).all()
    np.testing.assert_array_equal(times["wall"], times["compute"])
