"""The built-in model's own forward: Qwen3-MoE with fast CPU kernels and transformers' parameter names.

``FastModel(shape).state_dict()`` is what ``transformers.Qwen3MoeForCausalLM`` of the same sizes loads, key for key (the tied output
layer has no entry of its own).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from expertmiss.models.fast_kernels import causal_attention, dispatch, router_logits, run_experts, token_loss
from expertmiss.models.options import ModelShape


@dataclass
class RouterTerms:
    """What the routers of one forward answered, layer by layer.

    ``logits`` [B * T, E] each, float32, differentiable; ``counts`` [E] each, calls per expert; ``dropped`` calls over capacity; ``batch`` B.
    """

    batch: int
    logits: list[Tensor] = field(default_factory=list)
    counts: list[Tensor] = field(default_factory=list)
    dropped: int = 0

    def balance(self) -> Tensor:
        """Load-balancing loss over all tokens of the forward, summed over layers; one per layer when every expert has the same load.

        Switch Transformers (Fedus et al. 2022), equations 4 to 6.
        """
        terms = [len(c) * (torch.softmax(z, -1).mean(0) @ (c / c.sum()).float()) for z, c in zip(self.logits, self.counts, strict=True)]
        return torch.stack(terms).sum()

    def z(self) -> Tensor:
        """Mean squared log-sum-exp of the logits, summed over layers (ST-MoE, Zoph et al. 2022, equation 5)."""
        return torch.stack([torch.logsumexp(z, -1).square().mean() for z in self.logits]).sum()

    def change(self) -> Tensor:
        """Mean total variation distance, 0 to 1, between the router probabilities of neighbouring tokens, summed over layers."""
        probabilities = [torch.softmax(z, -1).view(self.batch, -1, z.shape[1]) for z in self.logits]
        return torch.stack([(p[:, 1:] - p[:, :-1]).abs().sum(-1).mean() / 2 for p in probabilities]).sum()


class RMSNorm(nn.Module):
    """Root mean square norm, as transformers' Qwen3MoeRMSNorm."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.rms_norm(x, list(self.weight.shape), self.weight, self.eps)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Attention(nn.Module):
    """Grouped-query attention with a norm on every query and key head."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        width, query, key = shape.hidden_size, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(width, query, bias=False)
        self.k_proj = nn.Linear(width, key, bias=False)
        self.v_proj = nn.Linear(width, key, bias=False)
        self.o_proj = nn.Linear(query, width, bias=False)
        self.q_norm = RMSNorm(shape.head_dim, shape.norm_eps)
        self.k_norm = RMSNorm(shape.head_dim, shape.norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        kv, group, dim = self.shape.kv_heads, self.shape.heads // self.shape.kv_heads, self.shape.head_dim
        q = self.q_norm(self.q_proj(x).view(batch, length, kv, group, dim)).permute(0, 2, 3, 1, 4)
        k = self.k_norm(self.k_proj(x).view(batch, length, kv, dim)).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, kv, dim).transpose(1, 2)
        out = causal_attention(_rotate(q, cos, sin) * dim**-0.5, _rotate(k, cos, sin), v)
        result: Tensor = self.o_proj(out.permute(0, 3, 1, 2, 4).reshape(batch, length, -1))
        return result


class Router(nn.Module):
    """Linear router without bias."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape.experts, shape.hidden_size))

    def forward(self, x: Tensor) -> Tensor:
        return router_logits(x, self.weight)


class ExpertStack(nn.Module):
    """Weights of all experts of a layer."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(shape.experts, 2 * shape.expert_size, shape.hidden_size))
        self.down_proj = nn.Parameter(torch.empty(shape.experts, shape.hidden_size, shape.expert_size))


class MoE(nn.Module):
    """Softmax router over E experts, top K, weights normalised over the chosen."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.gate = Router(shape)
        self.experts = ExpertStack(shape)

    def forward(self, x: Tensor, terms: RouterTerms, capacity_factor: float | None) -> Tensor:
        batch, length, width = x.shape
        flat = x.reshape(-1, width)
        logits = self.gate(flat)
        k = self.shape.experts_per_token
        # numpy's vectorised selection takes half the time of torch.topk on one thread; nothing here needs the K in order.
        ids = torch.from_numpy(np.argpartition(-logits.detach().numpy(), k - 1, axis=1)[:, :k].copy())
        chosen = logits.gather(1, ids)
        mean_load = ids.numel() / self.shape.experts
        plan = dispatch(ids, self.shape.experts, None if capacity_factor is None else int(capacity_factor * mean_load) + 1)
        # The softmax over all experts, renormalised over the chosen, is the softmax over the chosen.
        y = run_experts(flat, torch.softmax(chosen, -1), self.experts.gate_up_proj, self.experts.down_proj, plan)
        terms.counts.append(plan.counts)
        terms.dropped += plan.dropped
        terms.logits.append(logits)
        return y.view(batch, length, width)


class Layer(nn.Module):
    """One decoder layer."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = MoE(shape)
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.norm_eps)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.norm_eps)


class Decoder(nn.Module):
    """Embedding, layers, and final norm."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.hidden_size, shape.norm_eps)


class FastModel(nn.Module):
    """The whole model; random weights of ``seed`` until a state dict is loaded."""

    def __init__(self, shape: ModelShape, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.model = Decoder(shape)
        inverse = 1.0 / shape.rope_theta ** (torch.arange(0, shape.head_dim, 2).float() / shape.head_dim)
        angle = torch.arange(shape.max_positions).float()[:, None] * inverse
        self.angle = torch.cat((angle, angle), -1)
        self._initialise(seed)

    def _initialise(self, seed: int) -> None:
        """Normal weights of deviation 1/sqrt(inputs); what writes to the residual stream is divided by sqrt(2 layers)."""
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                deviation = 0.02 if "embed_tokens" in name else parameter.shape[-1] ** -0.5
                if "o_proj" in name or "down_proj" in name:
                    deviation /= (2 * self.shape.layers) ** 0.5
                nn.init.normal_(parameter, std=deviation, generator=generator)

    def hidden(self, tokens: Tensor, capacity_factor: float | None) -> tuple[Tensor, RouterTerms]:
        """Final hidden states [B, T, H] of ``tokens`` [B, T], and the routers' answers."""
        terms = RouterTerms(tokens.shape[0])
        x = self.model.embed_tokens(tokens)
        angle = self.angle[: tokens.shape[1]]
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        for layer in self._layers():
            x = x + layer.self_attn(layer.input_layernorm(x), cos, sin)
            x = x + layer.mlp(layer.post_attention_layernorm(x), terms, capacity_factor)
        return self.model.norm(x), terms

    def _layers(self) -> Iterator[Layer]:
        for layer in self.model.layers:
            assert isinstance(layer, Layer)
            yield layer

    def forward(self, tokens: Tensor) -> tuple[Tensor, RouterTerms]:
        """Logits [B, T, V] in float32 and the routers' answers; drops nothing."""
        x, terms = self.hidden(tokens, None)
        return (x @ self.model.embed_tokens.weight.T).float(), terms

    def loss(self, tokens: Tensor, capacity_factor: float | None) -> tuple[Tensor, Tensor, RouterTerms]:
        """Mean and per-token [B, T] cross entropy in nats of ``tokens`` [B, T + 1], and the routers' answers.

        ``capacity_factor``: drop what exceeds this multiple of an expert's mean load; None drops nothing.
        """
        x, terms = self.hidden(tokens[:, :-1], capacity_factor)
        target = tokens[:, 1:].reshape(-1)
        mean, each = token_loss(x.reshape(-1, x.shape[-1]), self.model.embed_tokens.weight, target)
        return mean, each.view(tokens.shape[0], -1), terms
