"""What the emulator refuses, and that it leaves the model as it found it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from expertmiss.emulate.emulator import Emulator
from expertmiss.emulate.replay import recorded_trace
from expertmiss.emulate.rows import Row
from expertmiss.errors import UserError
from expertmiss.policies import simulate
from tests.models.tiny import tiny_model

TEXT = np.random.default_rng(1).integers(0, 64, 48)
COLD: dict[str, Any] = {"name": "one", "miss_rule": {"name": "first_choice"}, "initial": "cold"}


def emulator(model: Any = None, **changes: Any) -> Emulator:
    return Emulator(tiny_model("qwen3_moe") if model is None else model, [Row("one", {**COLD, **changes}, 6)])


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (np.array([1, 64]), "document 7: token id 64 is not below the vocabulary's 64"),
        (np.array([-1, 3]), "document 7: token id -1 is not below"),
        (np.zeros(257, dtype=np.int64), "257 tokens, the model's context holds 256"),
        (np.array([1]), "a row of 2 or more token ids"),
        (np.ones((2, 3), dtype=np.int64), r"tokens of shape \[2, 3\]"),
    ],
)
def test_tokens_that_are_no_document_are_refused(tokens: Any, message: str) -> None:
    for form in ("whole", "stepped"):
        with pytest.raises(UserError, match=message):
            getattr(emulator(), form)(tokens, 7)


def test_a_router_that_answers_no_number_is_named() -> None:
    model = tiny_model("qwen3_moe")
    with torch.no_grad():
        model.model.layers[1].mlp.gate.weight[5] = torch.nan
    with pytest.raises(UserError, match=r"document 7, layer 1, row 0 of the batch: the logit of expert 5 is not finite"):
        emulator(model).whole(TEXT, 7)
    assert model.model.layers[0].mlp.gate.top_k == 4
    assert not model.model.layers[0].mlp.gate._forward_hooks


def test_policies_that_a_running_model_cannot_follow_are_refused() -> None:
    with pytest.raises(UserError, match=r"a warm start needs counts of a calibration trace; give them, or set initial to cold$"):
        emulator(initial="warm")
    with pytest.raises(UserError, match=r"eviction opt needs recorded future requests, which a running model has not$"):
        emulator(miss_rule={"name": "fetch_all"}, eviction={"name": "opt"})
    with pytest.raises(UserError, match="use the stepped form"):
        emulator(scope="global").whole(TEXT, 7)


@pytest.mark.parametrize(
    "rule", [{"name": "first_choice"}, {"name": "drop_cold", "F": 1.0}, {"name": "cache_prior", "lambda": 0.2, "J": 1}]
)
def test_a_shared_pool_runs_stepped_and_replays_slot_for_slot(rule: dict[str, Any]) -> None:
    policy = {**COLD, "scope": "global", "miss_rule": rule}
    if rule["name"] == "first_choice":
        policy["admission"] = {"name": "background", "beta": 0.4, "delay": 2}
    one = Emulator(tiny_model("qwen3_moe"), [Row("one", policy, 6)], log=True)
    stepped = one.stepped(TEXT, 7, keep=True)
    assert stepped.meters["tokens"].tolist() == [[48, 48, 48]]
    assert stepped.meters["substituted"].sum() + stepped.meters["dropped"].sum() > 0
    log = one.take_logs()[0]
    replayed = simulate(recorded_trace([(7, stepped)], 0, one.meta), policy, 6, log=True, check=True)["log"]
    for part in ("calls", "landings"):
        for column, values in replayed[part].items():
            np.testing.assert_array_equal(log[part][column], values, err_msg=column)


def test_the_plain_forward_is_the_models_own_and_choosing_one_expert_changes_nothing() -> None:
    """Inside the block the routers' own top-k is cut to one; their logits, and afterwards their choices, stay what they were."""
    model = tiny_model("qwen3_moe")
    one = Emulator(model, [Row("fetch_all", {**COLD, "miss_rule": {"name": "fetch_all"}}, 6)])
    before = one.plain(TEXT)
    emulated = one.whole(TEXT, 0, keep=True)
    assert (one.plain(TEXT) == before).all()
    np.testing.assert_allclose(emulated.nll, before, atol=1e-4)
    with torch.inference_mode():
        losses = torch.nn.functional.cross_entropy(
            model(torch.from_numpy(TEXT)[None], use_cache=False).logits[0, :-1], torch.from_numpy(TEXT[1:]), reduction="none"
        )
    np.testing.assert_allclose(before[0], losses.numpy(), atol=1e-5)


def test_logits_that_a_trace_cannot_hold_are_refused() -> None:
    with pytest.raises(UserError, match="router logits were not kept"):
        recorded_trace([(7, emulator().whole(TEXT, 7))], 0, emulator().meta)
    wide = emulator(tiny_model("qwen3_moe", torch.float64))
    with pytest.raises(UserError, match="a trace holds float32"):
        recorded_trace([(7, wide.whole(TEXT, 7, keep=True))], 0, wide.meta)
