"""Differentiable pieces of the fast CPU forward: experts, attention, router, and output layer.

Each is exact up to floating point; they exist because transformers' own forms were 15 times slower in bfloat16 on two cores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

# Matrix kernels are generated per shape: rounding the number of rows keeps the set of shapes small.
ROW_MULTIPLE = 32
TIERS = 8
QUERY_BLOCK = 128
LOSS_ROWS = 1024


@dataclass(frozen=True)
class Tier:
    """Experts of similar load, padded to the same number of ``rows``: places ``first`` to ``last`` of the order by load, slots from ``start``."""

    first: int
    last: int
    rows: int
    start: int

    def experts(self, tensor: Tensor) -> Tensor:
        """This tier's part of a tensor [E, ...] in the order by load."""
        return tensor[self.first : self.last]

    def slots(self, tensor: Tensor) -> Tensor:
        """This tier's part of a tensor [S, width], as [experts, rows, width]."""
        return tensor[self.start : self.start + (self.last - self.first) * self.rows].view(self.last - self.first, self.rows, -1)


@dataclass(frozen=True)
class Dispatch:
    """Where each call (token, rank) sits in the experts' padded blocks of rows.

    ``order`` [E] experts by falling load; ``inverse`` its inverse; ``tiers`` split that order; ``token`` [S] token of a slot (0 in
    padding); ``call`` [S] flat call of a slot (-1 in padding); ``slot`` [N, K] slot of a call (S where dropped); ``counts`` [E] calls per
    expert before dropping; ``dropped`` calls dropped.
    """

    order: Tensor
    inverse: Tensor
    tiers: list[Tier]
    token: Tensor
    call: Tensor
    slot: Tensor
    counts: Tensor
    dropped: int


def dispatch(ids: Tensor, experts: int, capacity: int | None = None) -> Dispatch:
    """Sort the calls ``ids`` [N, K] by expert; beyond ``capacity`` rows per expert the latest tokens are dropped (None: never)."""
    calls, k = ids.numel(), ids.shape[1]
    flat = ids.numpy().astype(np.uint16).reshape(-1)
    by_expert = np.argsort(flat, kind="stable")
    counts = np.bincount(flat, minlength=experts)
    order = np.argsort(-counts, kind="stable")
    tiers, start = [], 0
    first_slot = np.empty(experts, dtype=np.int64)
    size = max(1, experts // TIERS)
    for first in range(0, experts, size):
        members = order[first : first + size]
        longest = int(counts[members[0]])
        rows = -(-(longest if capacity is None else min(longest, capacity)) // ROW_MULTIPLE) * ROW_MULTIPLE
        tiers.append(Tier(first, first + len(members), rows, start))
        first_slot[members] = start + rows * np.arange(len(members))
        start += rows * len(members)
    expert = flat[by_expert].astype(np.int64)
    position = np.arange(calls) - (np.cumsum(counts) - counts)[expert]
    kept = np.full(calls, True) if capacity is None else position < capacity
    slot = np.where(kept, first_slot[expert] + position, start)
    call = np.full(start, -1, dtype=np.int64)
    call[slot[kept]] = by_expert[kept]
    slots = np.empty(calls, dtype=np.int64)
    slots[by_expert] = slot
    return Dispatch(
        order=torch.from_numpy(order),
        inverse=torch.from_numpy(np.argsort(order)),
        tiers=[tier for tier in tiers if tier.rows],
        token=torch.from_numpy(np.maximum(call, 0) // k),
        call=torch.from_numpy(call),
        slot=torch.from_numpy(slots.reshape(-1, k)),
        counts=torch.from_numpy(counts),
        dropped=int(calls - kept.sum()),
    )


def _tier_products(plan: Dispatch, rows: Tensor, matrices: Tensor, out: Tensor) -> Tensor:
    """``rows`` [S, A] times its expert's matrix of ``matrices`` [E, A, B] (in the order by load), into the first S rows of ``out``."""
    for tier in plan.tiers:
        torch.bmm(tier.slots(rows), tier.experts(matrices), out=tier.slots(out))
    return out


def _tier_gradients(plan: Dispatch, left: Tensor, right: Tensor) -> Tensor:
    """Sum over an expert's slots of ``left`` [S, A] times ``right`` [S, B]: [E, A, B] in the experts' own order."""
    out = left.new_zeros(len(plan.order), left.shape[1], right.shape[1])
    for tier in plan.tiers:
        torch.bmm(tier.slots(left).transpose(1, 2), tier.slots(right), out=tier.experts(out))
    return out.index_select(0, plan.inverse)


def _with_zero_row(rows: Tensor, width: int) -> Tensor:
    """Room for [S, width] and a last row of zeros, where the slots of dropped calls point."""
    out = rows.new_empty(len(rows) + 1, width)
    out[-1] = 0
    return out


def _gather_sum(rows: Tensor, slot: Tensor) -> Tensor:
    """Sum over the K slots of each token: ``rows`` [S + 1, H], ``slot`` [N, K] -> [N, H]."""
    return torch.nn.functional.embedding_bag(slot, rows, mode="sum")


class Experts(Function):
    """Weighted sum of SwiGLU experts, sum_k w_k down_k(silu(gate_k x) * up_k x).

    ``x`` [N, H], ``weights`` [N, K], ``gate_up`` [E, 2I, H], ``down`` [E, H, I] -> [N, H]. The weight is applied before the down
    projection, so that its gradient is a sum over I rather than H.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor, plan: Dispatch) -> Tensor:
        inner, width = down.shape[2], x.shape[1]
        gate_up, down = gate_up.index_select(0, plan.order), down.index_select(0, plan.order)
        rows = x.index_select(0, plan.token)
        hidden = _tier_products(plan, rows, gate_up.transpose(1, 2), rows.new_empty(len(rows), 2 * inner))
        gate, up = hidden[:, :inner].contiguous(), hidden[:, inner:].contiguous()
        flat = weights.reshape(-1)
        weight = torch.where(plan.call >= 0, flat[plan.call], flat.new_zeros(())).to(x.dtype)[:, None]
        active = torch.nn.functional.silu(gate)
        out = _tier_products(plan, active * up * weight, down.transpose(1, 2), _with_zero_row(rows, width))
        ctx.save_for_backward(rows, gate, up, active, weight, gate_up, down)
        ctx.plan, ctx.weights_dtype = plan, weights.dtype
        return _gather_sum(out, plan.slot)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        rows, gate, up, active, weight, gate_up, down = ctx.saved_tensors
        plan: Dispatch = ctx.plan
        g = grad.contiguous().index_select(0, plan.token)
        product = active * up
        g_down = _tier_gradients(plan, product * weight, g).transpose(1, 2)
        g_product = _tier_products(plan, g, down, torch.empty_like(product))
        g_weight = torch.zeros(len(rows) + 1)
        torch.sum(g_product * product, -1, dtype=torch.float32, out=g_weight[:-1])
        g_product *= weight
        g_hidden = torch.cat((torch.ops.aten.silu_backward(g_product * up, gate), g_product * active), -1)
        g_gate_up = _tier_gradients(plan, g_hidden, rows)
        g_rows = _tier_products(plan, g_hidden, gate_up, _with_zero_row(rows, rows.shape[1]))
        return _gather_sum(g_rows, plan.slot), g_weight[plan.slot].to(ctx.weights_dtype), g_gate_up, g_down, None


class CausalAttention(Function):
    """Causal softmax attention with grouped heads, in query blocks so that the upper triangle is not computed.

    ``q`` [B, Hkv, G, T, D] already scaled, ``k`` and ``v`` [B, Hkv, T, D] -> [B, Hkv, G, T, D].
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        batch, kv, group, length, dim = q.shape
        k, v = k.reshape(batch * kv, length, dim), v.reshape(batch * kv, length, dim)
        q = q.reshape(batch * kv, group, length, dim)
        out = torch.empty_like(q)
        probabilities = []
        for start in range(0, length, QUERY_BLOCK):
            stop = min(start + QUERY_BLOCK, length)
            mask = torch.full((stop - start, stop), float("-inf"), dtype=q.dtype).triu_(start + 1).repeat(group, 1)
            block = q[:, :, start:stop].reshape(batch * kv, -1, dim)
            p = torch.softmax(torch.baddbmm(mask, block, k[:, :stop].transpose(1, 2)), -1)
            out[:, :, start:stop] = torch.bmm(p, v[:, :stop]).view(batch * kv, group, -1, dim)
            probabilities.append(p)
        ctx.save_for_backward(q, k, v, *probabilities)
        ctx.shape = (batch, kv, group, length, dim)
        return out.view(ctx.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, *probabilities = ctx.saved_tensors
        batch, kv, group, length, dim = ctx.shape
        grad = grad.reshape(batch * kv, group, length, dim)
        g_q, g_k, g_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for start, p in zip(range(0, length, QUERY_BLOCK), probabilities, strict=True):
            stop = min(start + QUERY_BLOCK, length)
            block = q[:, :, start:stop].reshape(batch * kv, -1, dim)
            g = grad[:, :, start:stop].reshape(batch * kv, -1, dim)
            g_v[:, :stop] += torch.bmm(p.transpose(1, 2), g)
            g_s = torch._softmax_backward_data(torch.bmm(g, v[:, :stop].transpose(1, 2)), p, -1, q.dtype)
            g_q[:, :, start:stop] = torch.bmm(g_s, k[:, :stop]).view(batch * kv, group, -1, dim)
            g_k[:, :stop] += torch.bmm(g_s.transpose(1, 2), block)
        return g_q.view(ctx.shape), g_k.view(batch, kv, length, dim), g_v.view(batch, kv, length, dim)


class RouterLogits(Function):
    """``x`` [N, H] times ``weight`` [E, H] in float32, [N, E]; the gradients are multiplied in ``x``'s own type."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x.float() @ weight.float().T

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        grad = grad.to(x.dtype)
        return grad @ weight, grad.T @ x


class TokenLoss(Function):
    """Cross entropy of an output layer, in rows of 1,024 so that the logits of a batch never exist at once.

    ``x`` [N, H], ``weight`` [V, H], ``target`` [N] -> (mean, per token [N], no gradient), float32, in nats. The gradient is computed in the
    forward pass, for a backward pass that follows.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        total = x.shape[0]
        g_x, g_weight = torch.empty_like(x), torch.zeros(weight.shape, dtype=torch.float32)
        losses = torch.empty(total, dtype=torch.float32)
        for start in range(0, total, LOSS_ROWS):
            rows, goal = x[start : start + LOSS_ROWS], target[start : start + LOSS_ROWS, None]
            log_p = torch.log_softmax((rows @ weight.T).float(), -1)
            losses[start : start + LOSS_ROWS] = -log_p.gather(1, goal)[:, 0]
            grad = log_p.exp_()
            grad.scatter_add_(1, goal, torch.full_like(goal, -1.0, dtype=grad.dtype))
            grad = grad.to(x.dtype)
            torch.mm(grad, weight, out=g_x[start : start + LOSS_ROWS])
            g_weight += grad.T @ rows
        ctx.save_for_backward(g_x, g_weight)
        ctx.mark_non_differentiable(losses)
        return losses.mean(), losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor, unused: Tensor) -> tuple[Tensor, Tensor, None]:
        g_x, g_weight = ctx.saved_tensors
        scale = grad / g_x.shape[0]
        return g_x * scale.to(g_x.dtype), (g_weight * scale).to(g_x.dtype), None


# Function.apply has no signature; these have.
run_experts: Callable[[Tensor, Tensor, Tensor, Tensor, Dispatch], Tensor] = Experts.apply
causal_attention: Callable[[Tensor, Tensor, Tensor], Tensor] = CausalAttention.apply
router_logits: Callable[[Tensor, Tensor], Tensor] = RouterLogits.apply
token_loss: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] = TokenLoss.apply
