"""Generation under policies: the reference arm is the plain model, prompts change no state, rows and problems do not see each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import DynamicCache

from expertmiss.emulate.decide import decided
from expertmiss.emulate.emulator import Emulator
from expertmiss.emulate.rows import Row
from expertmiss.errors import UserError
from expertmiss.generate.arms import ArmDecoder
from expertmiss.generate.decode import greedy
from expertmiss.models.adapters import ADAPTERS
from tests.models.tiny import tiny_model

DRAW = np.random.default_rng(7)
PROMPTS = [DRAW.integers(1, 64, length).tolist() for length in (6, 3, 11, 11)]
DOCUMENTS = [10, 11, 12, 13]
POLICIES = {
    "fetch_all": {"miss_rule": {"name": "fetch_all"}},
    "substitute_all": {"miss_rule": {"name": "substitute_all"}, "admission": {"name": "every_miss"}},
    "quality_first": {
        "miss_rule": {"name": "threshold", "tau": 0.3}, "eviction": {"name": "lfu", "variant": "half_life"},
        "admission": {"name": "background", "beta": 0.5, "delay": 1},
    },
    "random": {"miss_rule": {"name": "first_choice"}, "chooser": {"name": "random", "seed": 3}, "admission": {"name": "every_miss"}},
    "global": {"miss_rule": {"name": "first_choice"}, "scope": "global"},
}  # fmt: skip
ARMS = [Row(name, {"name": name, "initial": "warm", **policy}, 5) for name, policy in POLICIES.items()]
LENGTHS = (12, 9, 12, 5)


def counts(layers: int) -> Any:
    return np.random.default_rng(0).integers(0, 99, (layers, 16))


def ended(prompt: int, ids: list[int]) -> bool:
    return len(ids) == LENGTHS[prompt]


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model("qwen3_moe", torch.float64)


@pytest.mark.parametrize("kind", sorted(ADAPTERS))
def test_fetch_all_is_plain_greedy_generation_token_for_token(kind: str) -> None:
    model = tiny_model(kind, torch.float64)
    decoder = ArmDecoder(model, [ARMS[1], ARMS[0]], 4, counts(decoder_layers(model)), check=True)
    arms = decoder.run(PROMPTS, DOCUMENTS, cap=12, eos=None, ended=ended)
    plain = greedy(model, PROMPTS, cap=12, eos=None, ended=ended)
    assert [pair[1].tokens for pair in arms] == plain
    assert any(pair[0].tokens != pair[1].tokens for pair in arms)  # substitution does change what is generated
    assert all(pair[0].tokens[0] == pair[1].tokens[0] for pair in arms)  # but not the first token: prompts are lossless


def decoder_layers(model: Any) -> int:
    return len(ADAPTERS[model.config.model_type].routers(model))


def test_rows_of_the_batch_equal_single_rows_of_a_plain_loop(model: Any) -> None:
    """Reference: one prompt and one arm at a time, no padding, no batch, hooks around every single step."""
    found = ArmDecoder(model, ARMS, 4, counts(3), check=True).run(PROMPTS, DOCUMENTS, cap=12, eos=None, ended=ended)
    for prompt, ids in enumerate(PROMPTS):
        for arm, row in enumerate(ARMS):
            emulator = Emulator(model, [row], counts(3))
            emulator.steppers[0].reset(DOCUMENTS[prompt])
            cache, made = DynamicCache(config=model.config), []
            with torch.inference_mode():
                logits = model(torch.tensor([ids]), past_key_values=cache, use_cache=True).logits
                while True:
                    made.append(int(logits[0, -1].argmax()))
                    if len(made) == LENGTHS[prompt]:
                        break
                    with decided(emulator.routers, emulator.steppers, emulator.pool):
                        logits = model(torch.tensor([made[-1:]]), past_key_values=cache, use_cache=True).logits
            assert found[prompt][arm].tokens == made, (prompt, row.name)
            for name, values in emulator.steppers[0].meters().items():
                np.testing.assert_allclose(found[prompt][arm].meters[name], values, atol=1e-9)
    assert len({tuple(one.tokens) for arms in found for one in arms}) >= 8  # arms and prompts differ, a mix-up would show


def test_prompts_change_no_state(model: Any) -> None:
    decoder = ArmDecoder(model, ARMS, 1, counts(3))
    for stepper in decoder.emulator.steppers:
        stepper.reset(10)
    before = [stepper.snapshot() for stepper in decoder.emulator.steppers]
    made = decoder.run(PROMPTS[:1], [10], cap=1, eos=None, ended=ended)
    assert [stepper.snapshot() for stepper in decoder.emulator.steppers] == before
    assert all(len(one.tokens) == 1 and one.meters["tokens"].sum() == 0 for one in made[0])
    longer = decoder.run(PROMPTS[:1], [10], cap=4, eos=None, ended=ended)
    assert all((one.meters["tokens"] == 3).all() and (one.meters["calls"] == 12).all() for one in longer[0])  # the fourth is not fed back
    assert [stepper.snapshot() for stepper in decoder.emulator.steppers] != before


def test_problems_start_from_the_same_state(model: Any) -> None:
    """One after another, in another order and company: the same tokens and meters."""
    together = ArmDecoder(model, ARMS, 4, counts(3)).run(PROMPTS, DOCUMENTS, cap=12, eos=None, ended=ended)
    decoder = ArmDecoder(model, ARMS, 2, counts(3))
    for chosen in ((3, 1), (2,), (0,), (3, 0)):
        found = decoder.run(
            [PROMPTS[i] for i in chosen], [DOCUMENTS[i] for i in chosen], cap=12, eos=None, ended=lambda row, ids, chosen=chosen: ended(chosen[row], ids)
        )  # fmt: skip
        for place, prompt in enumerate(chosen):
            for one, other in zip(found[place], together[prompt], strict=True):
                assert one.tokens == other.tokens
                for name, values in one.meters.items():
                    np.testing.assert_allclose(values, other.meters[name], atol=1e-9)


def test_logs_cover_the_decode_steps(model: Any) -> None:
    found = ArmDecoder(model, ARMS[:2], 4, counts(3), log=True).run(PROMPTS, DOCUMENTS, cap=12, eos=None, ended=ended)
    for prompt, arms in enumerate(found):
        for one in arms:
            assert sorted(set(one.log["calls"]["t"].tolist())) == list(range(LENGTHS[prompt] - 1))


def test_what_does_not_fit_is_refused(model: Any) -> None:
    carried = Row("carried", {**ARMS[0].policy, "state": "carry"}, 5)
    with pytest.raises(UserError, match="policy carried: state 'carry' outlives a problem"):
        ArmDecoder(model, [carried], 1, counts(3))
    with pytest.raises(ValueError, match="4 prompts with 4 documents; at most 3"):
        ArmDecoder(model, ARMS[:1], 3, counts(3)).run(PROMPTS, DOCUMENTS, cap=2, eos=None, ended=ended)
