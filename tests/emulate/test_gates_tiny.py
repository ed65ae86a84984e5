"""Agreement gate 1a and 1d: on tiny random models of every adapter in float64, whole sequences and single steps decide identically."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from expertmiss import _core
from expertmiss.emulate.emulator import Emulator
from expertmiss.emulate.rows import Row
from expertmiss.models.adapters import ADAPTERS
from tests.models.tiny import tiny_model

TEXT = np.random.default_rng(1).integers(0, 64, 96)
POLICIES = {
    "fetch_all": {"miss_rule": {"name": "fetch_all"}},
    "substitute_all": {"miss_rule": {"name": "substitute_all"}, "admission": {"name": "every_miss"}},
    "quality_first": {
        "miss_rule": {"name": "threshold", "tau": 0.3}, "eviction": {"name": "lfu", "variant": "half_life"},
        "admission": {"name": "background", "beta": 0.5, "delay": 2},
    },
    "scaled": {"miss_rule": {"name": "first_choice"}, "weights": {"name": "scaled", "a": 0.5}, "admission": {"name": "every_miss"}, "update": "executed"},
    "drop_cold": {"miss_rule": {"name": "drop_cold", "F": 1.0}, "weights": {"name": "inherit"}},
    "cache_prior": {"miss_rule": {"name": "cache_prior", "lambda": 0.3, "J": 1}},
    "max_rank": {"miss_rule": {"name": "max_rank", "J": 1, "M": 8}},
    "matched": {"miss_rule": {"name": "first_choice"}, "chooser": {"name": "matched_random", "margin": 0.5, "seed": 3}, "admission": {"name": "every_miss"}},
}  # fmt: skip


def rows(capacity: int = 6) -> list[Row]:
    return [Row(name, {"name": name, "initial": "cold", **policy}, capacity) for name, policy in POLICIES.items()]


@pytest.mark.parametrize("kind", sorted(set(ADAPTERS) - {"qwen3_next"}))
def test_decisions_are_identical_and_logits_equal_to_1e_9(kind: str) -> None:
    emulator = Emulator(tiny_model(kind, torch.float64), rows(), log=True, check=True)
    whole, whole_log = emulator.whole(TEXT, 5, keep=True), emulator.take_logs()
    stepped, stepped_log = emulator.stepped(TEXT, 5, keep=True), emulator.take_logs()
    for one, other in zip(whole_log, stepped_log, strict=True):
        order = np.lexsort((one["calls"]["layer"], one["calls"]["t"]))  # whole sequences are walked layer by layer
        for column in ("t", "layer", "rank", "expert", "verdict", "substitute", "victim"):
            np.testing.assert_array_equal(one["calls"][column][order], other["calls"][column])
    assert whole.logits is not None and stepped.logits is not None
    assert (whole.logits - stepped.logits).abs().max() <= 1e-9
    for name, values in whole.meters.items():
        np.testing.assert_allclose(values, stepped.meters[name], atol=1e-9)


def test_qwen3_next_agrees_under_forced_decisions() -> None:
    """Its linear attention has two forms (chunked and recurrent), both float32 inside: decisions of one are forced onto the other."""
    emulator = Emulator(tiny_model("qwen3_next", torch.float64), rows(), check=True)
    whole = emulator.whole(TEXT, 5, keep=True)
    stepped = emulator.stepped(TEXT, 5, keep=True, forced=whole.decisions)
    assert whole.logits is not None and stepped.logits is not None
    assert (whole.logits - stepped.logits).abs().max() <= 1e-3


@pytest.mark.parametrize("mutant", _core.MUTANTS)
def test_a_defect_of_one_side_is_caught(mutant: str) -> None:
    """Gate 1d: the gate can fail. Router rows come in equal pairs, so that ties happen."""
    model = tiny_model("qwen3_moe", torch.float64)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("gate.weight"):
                parameter[1::2] = parameter[0::2]
    sound = Emulator(model, rows(), check=False).whole(TEXT, 5, keep=True)
    spoilt = Emulator(model, rows(), check=False, mutant=mutant).stepped(TEXT, 5, keep=True)
    assert sound.decisions is not None and spoilt.decisions is not None
    assert any((one[0] != other[0]).any() for one, other in zip(sound.decisions.ids, spoilt.decisions.ids, strict=True))


@pytest.mark.parametrize("kind", sorted(ADAPTERS))
def test_the_reference_row_is_the_plain_model(kind: str) -> None:
    """fetch_all through the core equals the framework's own routing up to its float32 softmax."""
    model = tiny_model(kind, torch.float64)
    emulated = Emulator(model, rows()[:1]).whole(TEXT, 0, keep=True)
    with torch.inference_mode():
        plain = model(torch.from_numpy(TEXT)[None], use_cache=False).logits
    assert emulated.logits is not None
    assert (emulated.logits[0] - plain[0]).abs().max() <= 1e-5
    losses = torch.nn.functional.cross_entropy(plain[0, :-1].float(), torch.from_numpy(TEXT[1:]), reduction="none")
    np.testing.assert_allclose(emulated.nll[0], losses.double().numpy(), atol=1e-4)


def test_rows_do_not_see_each_other() -> None:
    model = tiny_model("qwen3_moe", torch.float64)
    together = Emulator(model, rows()).whole(TEXT, 5)
    for index, row in enumerate(rows()):
        alone = Emulator(model, [row]).whole(TEXT, 5)
        np.testing.assert_allclose(alone.nll[0], together.nll[index], atol=1e-6)
