"""Prompts, decoding, resets and several sessions: the text's history and the slots must not depend on each other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from expertmiss.engine.session import Engine, EngineOptions
from tests.engine.random_gguf import Shape, tokens
from tests.engine.test_exactness import FETCH_ALL

KINDS = ("qwen3moe", "qwen3next", "gpt-oss")


def conversation(engine: Engine, text: np.ndarray, pieces: list[int]) -> list[bytes]:
    """Logits of prompt, decode, prompt ...: positive pieces are prompts, negative ones tokens that are decoded."""
    found, at = [], 0
    for piece in pieces:
        span = text[at : at + abs(piece)]
        found += [engine.prefill(span).tobytes()] if piece > 0 else [engine.step(token).tobytes() for token in span]
        at += abs(piece)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pieces", [[40, -20, 33, -20], [1, -10, 1, -1, 1, 2, -5, 1], [17, -3, 16, -3], [-5, 33, -5, 65, -5]])
def test_prompt_decode_prompt(kind: str, pieces: list[int], model_file: Callable[..., Path]) -> None:
    """Prompts of one token are the delicate ones: llama.cpp would reuse their graph, made for the file's tensors, on the slots."""
    shape = Shape(kind=kind)
    text = tokens(shape, sum(abs(piece) for piece in pieces))
    # Batches of 16: a prompt of 17 or 33 would leave a piece of one token.
    engine = Engine(model_file(kind), EngineOptions(context=256, batch=16, store="mapped"))
    engine.start_stock()
    stock = conversation(engine, text, pieces)
    engine.start(FETCH_ALL, shape.top_k + 1)
    assert conversation(engine, text, pieces) == stock
    engine.reset(1)  # and once more after a reset
    assert conversation(engine, text, pieces) == stock


def test_prompts_leave_the_policy_alone(model_file: Callable[..., Path]) -> None:
    text = tokens(Shape(), 60)
    engine = Engine(model_file(), EngineOptions(context=256, store="mapped"))
    engine.start(FETCH_ALL, 6, log=True)
    engine.prefill(text[:30])
    assert engine.meters()["tokens"].sum() == 0
    for token in text[30:]:
        engine.step(token)
    log = engine.take_log()["calls"]
    assert engine.meters()["tokens"].tolist() == [30] * 4
    assert log["t"].max() == 29


def test_a_reset_starts_from_the_same_state(model_file: Callable[..., Path]) -> None:
    text = tokens(Shape(), 40)
    counts = np.random.default_rng(0).integers(0, 100, (4, 32))
    engine = Engine(model_file(), EngineOptions(context=256))
    engine.start({**FETCH_ALL, "initial": "warm"}, 8, counts, log=True)
    runs = []
    for _ in range(2):
        engine.reset(3)
        assert engine.verify() == 8 * 4
        losses = engine.nll(text)
        calls = engine.take_log()["calls"]
        runs.append((losses.tobytes(), calls["verdict"].tobytes(), calls["victim"].tobytes()))
    assert runs[0] == runs[1]
    assert engine.traffic()["fills"] >= 8 * 4


def test_sessions_do_not_see_each_other(model_file: Callable[..., Path]) -> None:
    """Three models in one process, decoding at the same time."""
    kinds = ("qwen3moe", "qwen3moe", "gpt-oss")
    engines = [Engine(model_file(kind), EngineOptions(context=256)) for kind in kinds]
    texts = [tokens(Shape(kind=kind), 120, seed) for seed, kind in enumerate(kinds)]
    stock = []
    for engine, text in zip(engines, texts, strict=True):
        engine.start_stock()
        stock.append([engine.step(token).tobytes() for token in text])
    for capacity, engine in zip((4, 8, 5), engines, strict=True):
        engine.start(FETCH_ALL, capacity)

    def decode(pair: tuple[Engine, np.ndarray]) -> list[bytes]:
        return [pair[0].step(token).tobytes() for token in pair[1]]

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(decode, zip(engines, texts, strict=True))) == stock


def test_nll_is_that_of_the_logits(model_file: Callable[..., Path]) -> None:
    text = tokens(Shape(), 30)
    engine = Engine(model_file(), EngineOptions(context=64, store="mapped"))
    engine.start(FETCH_ALL, 8)
    losses = engine.nll(text)
    engine.reset(0)
    for position, token in enumerate(text[:-1]):
        logits = engine.step(token).astype(np.float64)
        assert abs(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[text[position + 1]] - losses[position]) < 1e-9


def test_a_model_in_several_files(tmp_path: Path, model_file: Callable[..., Path]) -> None:
    from tests.engine.random_gguf import make

    first = make(tmp_path / "split.gguf", Shape(), split=20)
    assert len(list(tmp_path.glob("split-*.gguf"))) > 1
    text = tokens(Shape(), 60)
    found = []
    for path in (first, model_file()):
        engine = Engine(path, EngineOptions(context=64))
        engine.start(FETCH_ALL, 5)
        found.append([engine.step(token).tobytes() for token in text])
    assert found[0] == found[1]
