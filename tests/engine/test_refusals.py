"""What the engine refuses: one sentence each, before anything is decoded wrongly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expertmiss.engine.session import Engine, EngineOptions
from expertmiss.errors import UserError
from tests.engine.random_gguf import Maker, Shape, make
from tests.engine.test_exactness import FETCH_ALL


@pytest.fixture
def engine(model_file: Callable[..., Path]) -> Engine:
    return Engine(model_file(), EngineOptions(context=16, store="mapped"))


def refused(sentence: str, call: Callable[[], Any]) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        call()
    assert len(str(caught.value)) < 300


def test_files_that_are_no_model(tmp_path: Path, model_file: Callable[..., Path]) -> None:
    refused("no such file", lambda: Engine(tmp_path / "absent.gguf"))
    (tmp_path / "text.gguf").write_text("not a model")
    refused("not a readable GGUF", lambda: Engine(tmp_path / "text.gguf"))
    whole = model_file().read_bytes()
    for share in (0.01, 0.5, 0.999):
        (tmp_path / "short.gguf").write_bytes(whole[: int(len(whole) * share)])
        refused("cut short|not a readable GGUF", lambda: Engine(tmp_path / "short.gguf"))


def test_a_dense_model(tmp_path: Path) -> None:
    path = make(tmp_path / "dense.gguf", Shape(kind="dense"))
    refused("a dense model", lambda: Engine(path))


def test_a_missing_part_of_a_split_model(tmp_path: Path) -> None:
    first = make(tmp_path / "split.gguf", Shape(), split=20)
    parts = sorted(tmp_path.glob("split-*.gguf"))
    refused("a later part of a split model; give the first of its 3", lambda: Engine(parts[1]))
    parts[1].unlink()
    refused("no such file", lambda: Engine(first))


def test_routing_that_the_engine_does_not_know(tmp_path: Path) -> None:
    """Group-limited choice: the graph is recognised as another one, not decoded as if it were plain."""
    shape = Shape(kind="glm4moe")
    maker = Maker(tmp_path / "groups.gguf", shape, "F32", 0)
    maker.writer.add_expert_group_count(4)
    maker.writer.add_expert_group_used_count(2)
    maker.write()
    refused("not supported", lambda: Engine(tmp_path / "groups.gguf"))


@pytest.mark.parametrize("capacity", [0, 3, 33])
def test_capacities_that_cannot_work(capacity: int, engine: Engine) -> None:
    refused("resident experts a layer: a token needs 4", lambda: engine.start(FETCH_ALL, capacity))


def test_a_batch_under_a_policy(engine: Engine) -> None:
    engine.start(FETCH_ALL, 8)
    refused("a batch of 3 tokens cannot be decoded under a policy", lambda: engine.step([1, 2, 3]))
    engine.step([1])


def test_tokens_and_context(engine: Engine) -> None:
    refused("has not been started", lambda: engine.step(1))
    engine.start(FETCH_ALL, 8)
    refused("token 256 is not one of", lambda: engine.step(256))
    refused("token -1 is not one of", lambda: engine.prefill([1, -1]))
    refused("the prompt is empty", lambda: engine.prefill([]))
    engine.prefill([1] * 16)
    refused("context of 16 tokens is full", lambda: engine.step(1))


def test_policies_and_options(engine: Engine, model_file: Callable[..., Path]) -> None:
    refused("miss_rule is missing", lambda: engine.start({"name": "x"}, 8))
    refused("pool shared by layers", lambda: engine.start({**FETCH_ALL, "scope": "global"}, 8))
    refused("future", lambda: engine.start({**FETCH_ALL, "eviction": {"name": "opt"}}, 8))
    refused("landing 'soon': scheduled or timed", lambda: engine.start(FETCH_ALL, 8, landing="soon"))
    refused("counts", lambda: engine.start({**FETCH_ALL, "initial": "warm"}, 8))
    refused("counts must be", lambda: engine.start({**FETCH_ALL, "initial": "warm"}, 8, np.zeros((2, 2), np.int64)))
    for options, sentence in (
        (EngineOptions(store="tape"), "store 'tape'"), (EngineOptions(device="CUDA7"), "device 'CUDA7': not there"),
        (EngineOptions(cache_type="q1"), "cache type 'q1'"), (EngineOptions(threads=0), "at least 1"),
    ):  # fmt: skip
        refused(sentence, lambda options=options: Engine(model_file(), options))


def test_repacked_tensors(model_file: Callable[..., Path]) -> None:
    """What llama.cpp rearranges for the processor cannot be moved expert by expert; stock still runs on it."""
    engine = Engine(model_file("qwen3moe", "Q4_0"), EngineOptions(context=16, repack=True, store="mapped"))
    engine.start_stock()
    assert np.isfinite(engine.step(1)).all()
    refused("was loaded in another form than the file's", lambda: engine.start(FETCH_ALL, 8))


def test_logits_that_are_not_finite(tmp_path: Path) -> None:
    maker = Maker(tmp_path / "nan.gguf", Shape(), "F32", 0)
    plain = maker.tensor

    def with_nan(name: str, *size: int, std: float = 0.05) -> None:
        if name == "blk.2.ffn_gate_inp.weight":
            maker.writer.add_tensor(name, np.full(size, np.nan, np.float32))
        else:
            plain(name, *size, std=std)

    maker.tensor = with_nan  # type: ignore[method-assign]
    maker.write()
    engine = Engine(tmp_path / "nan.gguf", EngineOptions(context=16, store="mapped"))
    engine.start(FETCH_ALL, 8)
    refused("not finite", lambda: engine.step(1))
    refused("ended with an earlier error", lambda: engine.step(1))
    engine.start(FETCH_ALL, 8)  # a new start is a new session
    refused("not finite", lambda: engine.step(1))
