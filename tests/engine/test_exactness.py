"""Lossless means lossless: with every miss fetched, every logit has stock llama.cpp's bits, whatever the number of slots."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from expertmiss.engine.session import Engine, EngineOptions
from tests.engine.random_gguf import TYPES, Shape, tokens

TOKENS = 520
FETCH_ALL = {"name": "fetch_all", "miss_rule": {"name": "fetch_all"}, "eviction": {"name": "lru"}, "initial": "cold"}
# Softmax over all, after the choice (gpt-oss), sigmoid with selection bias (glm4moe); normalised or not (olmoe); one tensor of gates and ups,
# biases of experts (gpt-oss), factors of experts, shared experts (qwen3next, glm4moe).
KINDS = ("qwen3moe", "qwen3next", "qwen3next-fused", "olmoe", "granitemoe", "gpt-oss", "glm4moe", "qwen3moe-scaled")


@pytest.mark.parametrize("expert_type", TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_fetching_every_miss_equals_stock_bit_for_bit(kind: str, expert_type: str, model_file: Callable[..., Path]) -> None:
    shape = Shape(kind=kind)
    text = tokens(shape, TOKENS)
    # Direct reads wait on the disk some thousand times a run: one model stands for them here.
    store = "direct" if (kind, expert_type) == ("qwen3moe", "Q4_0") else "mapped"
    engine = Engine(model_file(kind, expert_type), EngineOptions(context=TOKENS, store=store))
    engine.start_stock()
    stock = [engine.step(token).tobytes() for token in text]
    assert len(set(stock)) == TOKENS, "a model whose logits do not depend on the text proves nothing"
    for capacity in (shape.top_k, shape.top_k + 1, shape.experts // 4, shape.experts):
        engine.start(FETCH_ALL, capacity, check=True)
        engine.reset(0)
        for position, token in enumerate(text):
            assert engine.step(token).tobytes() == stock[position], f"capacity {capacity}, token {position}"
        meters, traffic = engine.meters(), engine.traffic()
        assert (meters["evictions"].sum() > 1000) == (capacity < shape.experts)
        assert traffic["fetches"] == meters["fetches"].sum() and traffic["repairs"] == 0
        assert engine.verify() == (capacity * len(meters["fetches"]) if capacity < shape.experts else meters["fetches"].sum())


@pytest.mark.parametrize("store", ["direct", "mapped"])
@pytest.mark.parametrize("cache_type", ["f16", "f32"])
@pytest.mark.parametrize("flash_attention", [False, True])
def test_other_settings_are_exact_too(store: str, cache_type: str, flash_attention: bool, model_file: Callable[..., Path]) -> None:
    options = EngineOptions(context=128, store=store, cache_type=cache_type, flash_attention=flash_attention, io_threads=3)
    engine = Engine(model_file("qwen3moe", "Q8_0"), options)
    text = tokens(Shape(), 100)
    engine.start_stock()
    stock = [engine.step(token).tobytes() for token in text]
    engine.start(FETCH_ALL, 6)
    assert [engine.step(token).tobytes() for token in text] == stock


def test_two_threads_are_exact_too(model_file: Callable[..., Path]) -> None:
    engine = Engine(model_file("qwen3moe", "Q8_0"), EngineOptions(context=64, threads=2))
    text = tokens(Shape(), 30)
    engine.start_stock()
    stock = [engine.step(token).tobytes() for token in text]
    engine.start(FETCH_ALL, 5)
    assert [engine.step(token).tobytes() for token in text] == stock


def test_the_comparison_can_fail(model_file: Callable[..., Path], tmp_path: Path) -> None:
    """One changed byte in one expert changes the logits."""
    data = bytearray(model_file().read_bytes())
    data[-100] ^= 0x40  # the exponent of a weight of the last layer's last expert of the down projection
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(data)
    text = tokens(Shape(), 200)
    found = []
    for path in (model_file(), damaged):
        engine = Engine(path, EngineOptions(context=200))
        engine.start(FETCH_ALL, 5)
        found.append([engine.step(token).tobytes() for token in text])
    assert found[0] != found[1]
