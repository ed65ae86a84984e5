"""OLMoE: softmax over all experts, weights not normalised unless ``norm_topk_prob``."""

from __future__ import annotations

from typing import Any

from expertmiss.models.adapters.base import Adapter, RouterModule, layers_with, softmax_triples


def routers(model: Any) -> list[RouterModule]:
    """Routers of the layers that have experts."""
    config = model.config
    return softmax_triples(layers_with(model, "gate"), "gate", config.num_experts, config.num_experts_per_tok, config.norm_topk_prob)


OLMOE = Adapter("olmoe", routers)
