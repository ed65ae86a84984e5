"""Substitution policies on the engine: the core's decisions, executed; full strength and none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expertmiss._core import Stepper
from expertmiss.engine.session import Engine, EngineOptions
from tests.engine.random_gguf import Shape, tokens

POLICIES: dict[str, dict[str, Any]] = {
    "fetch_all": {"miss_rule": {"name": "fetch_all"}, "eviction": {"name": "lfru"}},
    "rule_015": {"miss_rule": {"name": "threshold", "tau": 0.3}},
    "quality_first": {
        "miss_rule": {"name": "threshold", "tau": 0.3}, "eviction": {"name": "lfu", "variant": "half_life"},
        "admission": {"name": "background", "beta": 0.5, "delay": 2},
    },
    "substitute_all": {"miss_rule": {"name": "substitute_all"}, "admission": {"name": "every_miss"}},
    "scaled": {"miss_rule": {"name": "first_choice"}, "weights": {"name": "scaled", "a": 0.5}, "admission": {"name": "every_miss"}},
    "inherit": {"miss_rule": {"name": "first_choice"}, "weights": {"name": "inherit"}},
    "drop_cold": {"miss_rule": {"name": "drop_cold", "F": 1.2}, "weights": {"name": "own"}},
    "cache_prior": {"miss_rule": {"name": "cache_prior", "lambda": 0.3, "J": 1}},
    "max_rank": {"miss_rule": {"name": "max_rank", "J": 1, "M": 8}},
}  # fmt: skip
KINDS = ("qwen3moe", "gpt-oss", "olmoe", "glm4moe")
# The definitions refuse cache_prior where the router has a selection bias.
PAIRS = [(name, kind) for name in sorted(POLICIES) for kind in KINDS if (name, kind) != ("cache_prior", "glm4moe")]
TEXT = tokens(Shape(), 120)


def named(name: str) -> dict[str, Any]:
    return {"name": name, "initial": "cold", **POLICIES[name]}


@pytest.fixture(scope="module")
def engines(model_file: Callable[..., Path]) -> dict[str, Engine]:
    return {kind: Engine(model_file(kind), EngineOptions(context=256, store="mapped", cache_type="f32")) for kind in KINDS}


def stepped(engine: Engine, policy: dict[str, Any], capacity: int, **options: Any) -> list[bytes]:
    engine.start(policy, capacity, **options)
    engine.reset(3)
    return [engine.step(token).tobytes() for token in TEXT]


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_all_resident_equals_stock(name: str, kind: str, engines: dict[str, Engine]) -> None:
    """With C = E and everything resident no policy has anything to decide, re-routing ones included."""
    engine = engines[kind]
    engine.start_stock()
    stock = [engine.step(token).tobytes() for token in TEXT]
    counts = np.ones((engine.router["layers"], 32), np.int64)
    assert stepped(engine, {**named(name), "initial": "warm"}, 32, counts=counts) == stock


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_replay_of_the_engines_routers_decides_the_same(name: str, kind: str, engines: dict[str, Engine]) -> None:
    """Gate 2: router logits recorded under a policy, stepped through the core alone, slot for slot."""
    engine = engines[kind]
    stepped(engine, named(name), 6, log=True, keep=True, check=True)
    kept, log = engine.take_kept(), engine.take_log()
    stepper = Stepper(engine.router, named(name), 6, log=True, check=True)
    stepper.reset(3)
    for token in kept["logits"]:
        for layer, z in enumerate(token):
            stepper.step(layer, np.ascontiguousarray(z))
    replay = stepper.take_log()
    for part in ("calls", "landings"):
        for column, values in replay[part].items():
            np.testing.assert_array_equal(log[part][column], values, err_msg=f"{part}.{column}")
    assert engine.traffic()["differences"] == 0
    assert engine.verify() > 0


@pytest.mark.parametrize("kind", KINDS)
def test_no_strength_and_full_strength(kind: str, engines: dict[str, Engine]) -> None:
    """Gate 5: threshold(0) is fetch_all to the bit, threshold(inf) is first_choice, and full strength changes the logits."""
    engine = engines[kind]
    lossless = stepped(engine, {"name": "a", "miss_rule": {"name": "fetch_all"}, "initial": "cold"}, 6)
    assert stepped(engine, {"name": "b", "miss_rule": {"name": "threshold", "tau": 0.0}, "initial": "cold"}, 6) == lossless
    first = stepped(engine, {"name": "c", "miss_rule": {"name": "first_choice"}, "initial": "cold"}, 6)
    assert stepped(engine, {"name": "d", "miss_rule": {"name": "threshold", "tau": float("inf")}, "initial": "cold"}, 6) == first
    assert first != lossless
    assert engine.meters()["substituted"].sum() > 100
