"""The fast forward equals transformers' forward, in outputs, router logits, and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from expertmiss.models.export import from_transformers, to_transformers
from expertmiss.models.fast_kernels import causal_attention, dispatch, run_experts, token_loss
from expertmiss.models.fast_model import FastModel, RouterTerms
from expertmiss.models.options import ModelShape

SHAPES = [
    ModelShape(
        vocab_size=96, hidden_size=64, layers=2, heads=4, kv_heads=2, head_dim=16, experts=16, experts_per_token=3, max_positions=300
    ),
    ModelShape(
        vocab_size=64, hidden_size=32, layers=1, heads=2, kv_heads=2, head_dim=32, experts=5, experts_per_token=5, max_positions=140
    ),
]


def scrambled(shape: ModelShape, seed: int) -> FastModel:
    """Random weights, norm weights included (all ones would hide a norm that is left out)."""
    model = FastModel(shape, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_gradients_equal_transformers(shape: ModelShape) -> None:
    model = scrambled(shape, 1)
    reference = to_transformers(model, torch.float32)
    tokens = torch.randint(0, shape.vocab_size, (2, shape.max_positions), generator=torch.Generator().manual_seed(2))
    expected = reference(tokens[:, :-1], output_router_logits=True)
    logits, terms = model(tokens[:, :-1])
    assert float(expected.logits.detach().std()) > 0.05
    torch.testing.assert_close(logits, expected.logits, atol=1e-5, rtol=0)
    for got, want in zip(terms.logits, expected.router_logits, strict=True):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=0)

    goal = tokens[:, 1:].reshape(-1)
    want_loss = torch.nn.functional.cross_entropy(expected.logits.reshape(-1, shape.vocab_size), goal)
    want_loss.backward()
    loss, each, _ = model.loss(tokens, None)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(float(want_loss.detach()), abs=1e-5)
    assert float(each.mean()) == pytest.approx(float(loss.detach()), abs=1e-5)
    gradients = dict(reference.named_parameters())
    for name, parameter in model.named_parameters():
        want = gradients[name].grad
        torch.testing.assert_close(
            parameter.grad, want, atol=1e-4 * float(want.abs().max()), rtol=0, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_weights_survive_the_way_to_transformers_and_back() -> None:
    model = scrambled(SHAPES[0], 3)
    again = from_transformers(to_transformers(model, torch.float32))
    assert again.shape == model.shape
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


@given(st.integers(1, 9), st.integers(1, 60), st.integers(1, 8), st.integers(0, 99), st.booleans())
@settings(max_examples=60, deadline=None)
def test_dispatch_places_every_kept_call_once(experts: int, tokens: int, k: int, seed: int, capped: bool) -> None:
    k = min(k, experts)
    generator = np.random.default_rng(seed)
    ids = np.stack([generator.permutation(experts)[:k] for _ in range(tokens)])
    capacity = tokens * k // experts + 1 if capped else None
    plan = dispatch(torch.from_numpy(ids), experts, capacity)
    slots = len(plan.call)
    filled = {}
    for tier in plan.tiers:
        for place in range(tier.first, tier.last):
            for row in range(tier.rows):
                filled[tier.start + (place - tier.first) * tier.rows + row] = int(plan.order[place])
    kept = 0
    for token in range(tokens):
        for rank in range(k):
            slot = int(plan.slot[token, rank])
            if slot < slots:
                kept += 1
                assert int(plan.call[slot]) == token * k + rank
                assert int(plan.token[slot]) == token
                assert filled[slot] == ids[token, rank]
    counts = np.bincount(ids.reshape(-1), minlength=experts)
    assert kept == np.minimum(counts, capacity or tokens).sum() == tokens * k - plan.dropped
    assert (plan.call >= 0).sum() == kept


def test_dropped_calls_neither_act_nor_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 8, generator=generator, requires_grad=True)
    ids = torch.zeros(12, 1, dtype=torch.int64)
    weights = torch.rand(12, 1, generator=generator, requires_grad=True)
    gate_up, down = torch.randn(3, 8, 8, generator=generator), torch.randn(3, 8, 4, generator=generator)
    out = run_experts(x, weights, gate_up, down, dispatch(ids, 3, capacity=5))
    whole = run_experts(x, weights, gate_up, down, dispatch(ids, 3))
    assert torch.equal(out[:5], whole[:5])
    assert (out[5:] == 0).all() and (whole[5:] != 0).all()
    out.sum().backward()
    assert (x.grad[5:] == 0).all() and (weights.grad[5:] == 0).all()
    assert (x.grad[:5] != 0).any() and (weights.grad[:5] != 0).all()


def test_kernels_pass_the_finite_difference_check() -> None:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    assert torch.autograd.gradcheck(causal_attention, (random(2, 1, 2, 5, 3), random(2, 1, 5, 3), random(2, 1, 5, 3)))
    plan = dispatch(torch.tensor([[0, 1], [1, 2], [1, 0]]), 4)
    assert torch.autograd.gradcheck(
        lambda *values: run_experts(*values, plan), (random(3, 4), random(3, 2), random(4, 6, 4), random(4, 4, 3)), atol=1e-4, eps=1e-4
    )


def test_token_loss_in_pieces_equals_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("expertmiss.models.fast_kernels.LOSS_ROWS", 7)
    x = torch.randn(30, 16, requires_grad=True)
    weight = torch.randn(20, 16, requires_grad=True)
    target = torch.randint(0, 20, (30,))
    mean, each = token_loss(x, weight, target)
    (3 * mean).backward()
    got = (x.grad.clone(), weight.grad.clone())
    x.grad = weight.grad = None
    want = torch.nn.functional.cross_entropy(x @ weight.T, target, reduction="none")
    torch.testing.assert_close(each, want)
    (3 * want.mean()).backward()
    torch.testing.assert_close(got, (x.grad, weight.grad))


def test_router_terms_by_hand() -> None:
    """Two tokens of one document, two experts, K = 1: every figure computed on paper."""
    logits = torch.log(torch.tensor([[0.5, 0.5], [0.9, 0.1]]))
    terms = RouterTerms(1, [logits], [torch.tensor([2, 0])])
    assert float(terms.balance()) == pytest.approx(2 * 0.7)
    assert float(terms.z()) == pytest.approx(0.0, abs=1e-12)
    assert float(terms.change()) == pytest.approx(0.4)
