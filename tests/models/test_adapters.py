"""Contract of every router adapter, on a tiny random model of its architecture."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from expertmiss import _core
from expertmiss.errors import UserError
from expertmiss.models.adapters import ADAPTERS
from expertmiss.models.routers import RouterRecorder
from tests.models.tiny import TINY, tiny_model

TOKENS = torch.randint(0, 64, (2, 24), generator=torch.Generator().manual_seed(0))


def test_every_adapter_has_a_tiny_model() -> None:
    assert set(TINY) == set(ADAPTERS)


@pytest.mark.parametrize("kind", ["mixtral", "gpt_oss", "deepseek_v3"])
def test_an_architecture_without_adapter_is_refused_in_one_line(kind: str) -> None:
    config = AutoConfig.for_model(kind, num_hidden_layers=1)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    with pytest.raises(UserError, match=f"^model type '{kind}': no router adapter; supported: granitemoe, olmoe, qwen3_moe, qwen3_next "):
        RouterRecorder(model)


@pytest.mark.parametrize("kind", sorted(ADAPTERS))
def test_geometry_is_the_configurations(kind: str) -> None:
    geometry = RouterRecorder(tiny_model(kind)).geometry
    assert (geometry.experts, geometry.top_k, geometry.layers) == (16, 4, TINY[kind]["num_hidden_layers"])


@pytest.mark.parametrize("kind", sorted(ADAPTERS))
def test_the_core_ranks_as_the_framework_chooses(kind: str) -> None:
    for answer in RouterRecorder(tiny_model(kind)).run(TOKENS):
        ids, *_ = _core.rank_logits(answer.logits, depth=4)
        assert (np.sort(ids.astype(np.int64), axis=1) == np.sort(answer.ids, axis=1)).all()


@pytest.mark.parametrize("kind", sorted(ADAPTERS))
def test_an_answer_put_in_its_place_is_executed(kind: str) -> None:
    """With its own weights and ids nothing changes; with another expert's id the output does."""
    model = tiny_model(kind)
    recorder = RouterRecorder(model)
    router = recorder.routers[-1]
    seen: list[tuple[Any, Any]] = []

    def replaced(change: Any) -> torch.Tensor:
        def hook(module: Any, inputs: Any, output: Any) -> Any:
            seen.append(output)
            return router.answer(output, output[1].double(), change(router.ids(output)))

        handle = router.module.register_forward_hook(hook)
        try:
            with torch.inference_mode():
                return model(TOKENS, use_cache=False).logits
        finally:
            handle.remove()

    with torch.inference_mode():
        plain = model(TOKENS, use_cache=False).logits
    assert torch.equal(replaced(lambda ids: ids), plain)
    assert not torch.allclose(replaced(lambda ids: (ids + 1) % 16), plain, atol=1e-6)


@pytest.mark.parametrize("kind", sorted(ADAPTERS))
def test_normalised_weights_of_the_core_are_the_frameworks(kind: str) -> None:
    """fetch_all executes the router's own choice with the router's own weights, to the rounding of the framework's float32 softmax."""
    model = tiny_model(kind)
    recorder = RouterRecorder(model)
    geometry = recorder.geometry
    meta = {
        "layers": geometry.layers,
        "experts": 16,
        "top_k": 4,
        "gating": geometry.gating,
        "normalise": geometry.normalise,
        "scale": geometry.scale,
    }
    policy = {"name": "fetch_all", "miss_rule": {"name": "fetch_all"}, "initial": "cold"}
    outputs: list[Any] = []
    handles = [router.module.register_forward_hook(lambda module, given, output: outputs.append(output)) for router in recorder.routers]
    answers = recorder.run(TOKENS[:1])
    for handle in handles:
        handle.remove()
    for layer, (answer, output) in enumerate(zip(answers, outputs, strict=True)):
        stepper = _core.Stepper(meta, policy, 8)
        stepper.reset(0)
        ids, weights, _ = stepper.steps(layer, answer.logits)
        order, theirs = np.argsort(ids, axis=1), np.argsort(answer.ids, axis=1)
        mine = np.take_along_axis(weights, order, axis=1)
        framework = np.take_along_axis(output[1].double().numpy(), theirs, axis=1)
        np.testing.assert_allclose(mine, framework, atol=3e-7)
