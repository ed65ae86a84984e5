"""Slots in a memory that is not the host's: ggml's RPC server in another process stands for a device. Not a GPU timing.
EXPERTMISS_TEST_DEVICE=CUDA0 runs them on a real one, without the comparisons with the host's bits.

Covered: loading with experts on the host and the rest on the device, slots written through the backend's public calls while the graph runs
there, ids and weights read and written across, prompt batches on the host's tensors. Not covered: asynchronous copies, pinned memory, streams.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from expertmiss.engine.session import Engine, EngineOptions
from tests.engine.random_gguf import Shape, tokens
from tests.engine.test_exactness import FETCH_ALL
from tests.engine.test_landing import replayed
from tests.engine.test_policies import named
from tests.engine.test_session import conversation

REAL = os.environ.get("EXPERTMISS_TEST_DEVICE")
HOSTS_KERNELS = pytest.mark.skipif(bool(REAL), reason="another device's kernels round in another way than the host's")
SERVER = "import sys; from expertmiss.engine.library import library; library().serve_device(sys.argv[1], 1)"


@pytest.fixture(scope="module")
def device() -> Iterator[str]:
    if REAL:
        yield REAL
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-c", SERVER, f"127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            assert server.poll() is None, "the server has ended"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"rpc:127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@HOSTS_KERNELS
@pytest.mark.parametrize("kind", ["qwen3moe", "gpt-oss", "qwen3next-fused"])
def test_same_logits_as_everything_on_the_host(kind: str, device: str, model_file: Callable[..., Path]) -> None:
    """The server computes with the same kernels, so lossless decoding has the host's bits."""
    shape = Shape(kind=kind)
    text = tokens(shape, 150)
    host = Engine(model_file(kind), EngineOptions(context=256, store="mapped"))
    host.start_stock()
    stock = [host.prefill(text[:40]).tobytes()] + [host.step(token).tobytes() for token in text[40:]]
    engine = Engine(model_file(kind), EngineOptions(context=256, device=device))
    assert engine.router == host.router
    for capacity in (shape.top_k, 8, shape.experts):
        engine.start(FETCH_ALL, capacity, check=True)
        assert engine.verify() == 0
        found = [engine.prefill(text[:40]).tobytes()] + [engine.step(token).tobytes() for token in text[40:]]
        assert found == stock
        assert engine.verify() > 0


@HOSTS_KERNELS
def test_prompts_of_one_token_between_steps(device: str, model_file: Callable[..., Path]) -> None:
    """On a device a reused graph would hold the host's tensors where the slots are."""
    text, pieces = tokens(Shape(), 60), [1, -10, 1, -1, 1, 2, -5, 1, 20, -10, 1, -8]
    host = Engine(model_file(), EngineOptions(context=256, store="mapped"))
    host.start_stock()
    engine = Engine(model_file(), EngineOptions(context=256, device=device))
    engine.start(FETCH_ALL, 5)
    assert conversation(engine, text, pieces) == conversation(host, text, pieces)


@HOSTS_KERNELS
def test_same_decisions_as_on_the_host(device: str, model_file: Callable[..., Path]) -> None:
    text = tokens(Shape(), 100)
    logs = []
    for where in ("cpu", device):
        engine = Engine(model_file(), EngineOptions(context=256, device=where, store="mapped"))
        engine.start(named("quality_first"), 6, log=True, check=True)
        losses = engine.nll(text)
        logs.append((losses, engine.take_log()["calls"]))
    np.testing.assert_array_equal(logs[0][0], logs[1][0])
    for column, values in logs[0][1].items():
        np.testing.assert_array_equal(values, logs[1][1][column])


@pytest.mark.parametrize("store", ["direct", "mapped"])
@pytest.mark.parametrize("kind", ["qwen3moe", "gpt-oss"])
def test_same_logits_at_every_capacity(kind: str, store: str, device: str, model_file: Callable[..., Path]) -> None:
    """Lossless decoding on the device does not depend on what is resident, and the slots hold the file's bytes."""
    shape = Shape(kind=kind)
    text, found = tokens(shape, 100), []
    engine = Engine(model_file(kind), EngineOptions(context=128, device=device, store=store))
    for capacity in (shape.experts, 8, shape.top_k):
        engine.start(FETCH_ALL, capacity, check=True)
        found.append([engine.step(token).tobytes() for token in text])
        assert engine.verify() > 0
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("landing", ["scheduled", "timed"])
def test_background_admissions_on_the_device(landing: str, device: str, model_file: Callable[..., Path]) -> None:
    """Landings are copied while the device computes: slots against the file after every few tokens, and the decisions replay from the log."""
    engine = Engine(model_file("gpt-oss"), EngineOptions(context=256, device=device))
    engine.start(named("substitute_all"), 8, log=True, keep=True, check=True, landing=landing)
    for position, token in enumerate(tokens(Shape(kind="gpt-oss"), 120)):
        engine.step(token)
        if position % 10 == 9:
            assert engine.verify() == 8 * 4
    log, kept = engine.take_log(), engine.take_kept()
    assert len(log["landings"]["t"]) > 100
    again = replayed(engine, named("substitute_all"), 8, kept, log["landings"])
    for column, values in again["calls"].items():
        np.testing.assert_array_equal(log["calls"][column], values, err_msg=column)
