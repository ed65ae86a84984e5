"""Qwen3-MoE: weights are normalised over the chosen experts if ``norm_topk_prob``."""

from __future__ import annotations

from typing import Any

from expertmiss.models.adapters.base import Adapter, RouterModule, layers_with, softmax_triples


def routers(model: Any) -> list[RouterModule]:
    """Routers of the layers that have experts."""
    config = model.config
    return softmax_triples(layers_with(model, "gate"), "gate", config.num_experts, config.num_experts_per_tok, config.norm_topk_prob)


QWEN3_MOE = Adapter("qwen3_moe", routers)
