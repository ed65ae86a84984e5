"""Agreement gate 4: the engine against the emulator, on the built-in model with float32 weights, keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from expertmiss.emulate.decide import Decisions
from expertmiss.emulate.emulator import Emulated, Emulator
from expertmiss.emulate.rows import Row
from expertmiss.engine.session import Engine, EngineOptions
from expertmiss.models.load import load_model
from tests.engine.builtin import BUILTIN, DOCUMENTS, builtin_file
from tests.engine.test_policies import named

CAPACITY = 64
TOKENS = 224
FETCH_ALL = {"name": "fetch_all", "miss_rule": {"name": "fetch_all"}, "eviction": {"name": "lru"}, "initial": "cold"}


def decisions(kept: dict[str, Any]) -> Decisions:
    """The engine's decisions as the emulator takes them."""
    layers = range(kept["ids"].shape[1])
    return Decisions([[kept["ids"][None, :, layer]] for layer in layers], [[kept["weights"][None, :, layer]] for layer in layers])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Every document on the engine; on the emulator with the engine's decisions forced, and free."""
    torch.set_num_threads(1)
    engine = Engine(builtin_file(tmp_path_factory, "F32"), EngineOptions(store="mapped", cache_type="f32", context=TOKENS))
    engine.start(FETCH_ALL, CAPACITY, keep=True, check=True)
    emulator = Emulator(load_model(BUILTIN)[0], [Row("fetch_all", FETCH_ALL, CAPACITY)], threads=1)
    found = []
    for document, text in enumerate(DOCUMENTS):
        ids = np.array(engine.tokenize(text)[:TOKENS])
        engine.reset(document)
        logits = np.stack([engine.step(token) for token in ids])
        kept = engine.take_kept()
        forced = decisions(kept)
        found.append({
            "ids": ids, "logits": logits, "kept": kept, "meters": engine.meters(), "forced": emulator.whole(ids, document, keep=True, forced=forced),
            "free": emulator.whole(ids, document, keep=True),
        })  # fmt: skip
    return found


def router_logits(emulated: Emulated) -> np.ndarray:
    """[T, L, E]."""
    assert emulated.decisions is not None
    return np.stack([layer[0][0] for layer in emulated.decisions.logits], axis=1)


def test_forced_decisions_give_the_same_logits(runs: list[dict[str, Any]]) -> None:
    for run in runs:
        assert run["forced"].logits is not None
        assert np.abs(run["forced"].logits[0].numpy() - run["logits"]).max() <= 1e-2


def test_free_running_agrees(runs: list[dict[str, Any]]) -> None:
    """Mean NLL within 0.1 %; where a layer's executed set first differs, the K-th and the next logit were closer than four rounding errors."""
    ours, theirs, later = [], [], 0
    for run in runs:
        logits = torch.from_numpy(run["logits"][:-1]).double()
        ours.append(torch.nn.functional.cross_entropy(logits, torch.from_numpy(run["ids"][1:]), reduction="none").numpy())
        theirs.append(run["free"].nll[0])
        eps = np.abs(router_logits(run["forced"]) - run["kept"]["logits"]).max()
        assert 0 < eps < 1e-3
        free = np.stack([layer[0][0] for layer in run["free"].decisions.ids], axis=1)
        differs = (np.sort(free, -1) != np.sort(run["kept"]["ids"], -1)).any(-1)  # [T, L]
        ranked = -np.sort(-run["kept"]["logits"], -1)
        margins = ranked[..., 7] - ranked[..., 8]
        for layer in np.nonzero(differs.any(0))[0]:
            assert margins[differs[:, layer].argmax(), layer] <= 4 * eps
        later += int(differs.sum())
    assert abs(np.concatenate(ours).mean() / np.concatenate(theirs).mean() - 1) <= 1e-3
    assert later <= 0.05 * sum(len(run["ids"]) for run in runs) * 6


def test_the_caches_agree(runs: list[dict[str, Any]]) -> None:
    """Hits and evictions are those of the emulator where no decision differed."""
    for run in runs:
        free = np.stack([layer[0][0] for layer in run["free"].decisions.ids], axis=1)
        same = (np.sort(free, -1) == np.sort(run["kept"]["ids"], -1)).all((0, 2))
        assert same.any()
        for meter in ("hits", "fetches", "evictions", "compulsory"):
            np.testing.assert_array_equal(run["meters"][meter][same], run["free"].meters[meter][0][same])
        assert run["meters"]["evictions"].sum() > 100


@pytest.mark.parametrize("name", ["quality_first", "scaled", "inherit", "drop_cold", "cache_prior"])
def test_policies_execute_what_the_emulator_executes(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Substitutes, dropped calls and their weights: the engine's decisions forced onto the emulator give the engine's logits."""
    engine = Engine(builtin_file(tmp_path_factory, "F32"), EngineOptions(store="mapped", cache_type="f32", context=TOKENS))
    engine.start(named(name), 24, keep=True, check=True)
    ids = np.array(engine.tokenize(DOCUMENTS[1])[:TOKENS])
    logits = np.stack([engine.step(token) for token in ids])
    forced = decisions(engine.take_kept())
    meters = engine.meters()
    assert meters["dropped" if name == "drop_cold" else "substituted"].sum() > 500
    emulator = Emulator(load_model(BUILTIN)[0], [Row("fetch_all", FETCH_ALL, CAPACITY)], threads=1)
    emulated = emulator.whole(ids, 0, keep=True, forced=forced)
    assert emulated.logits is not None
    assert np.abs(emulated.logits[0].numpy() - logits).max() <= 1e-2
    lossless = emulator.whole(ids, 0, keep=True)
    assert lossless.logits is not None
    assert np.abs(lossless.logits[0].numpy() - logits).max() > 0.5


def test_the_gate_can_fail(runs: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Swapped weights of two executed experts are far outside the tolerance."""
    emulator = Emulator(load_model(BUILTIN)[0], [Row("fetch_all", FETCH_ALL, CAPACITY)], threads=1)
    run = runs[0]
    swapped = {**run["kept"], "weights": run["kept"]["weights"][:, :, [1, 0, *range(2, 8)]]}
    spoilt = emulator.whole(run["ids"], 0, keep=True, forced=decisions(swapped))
    assert spoilt.logits is not None
    assert np.abs(spoilt.logits[0].numpy() - run["logits"]).max() > 0.1
