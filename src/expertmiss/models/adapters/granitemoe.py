"""Granite MoE: softmax over the chosen logits only."""

from __future__ import annotations

from typing import Any

from expertmiss.models.adapters.base import Adapter, RouterModule, layers_with, softmax_triples


def routers(model: Any) -> list[RouterModule]:
    """Routers of the layers that have experts."""
    config = model.config
    return softmax_triples(
        layers_with(model, "router", "block_sparse_moe"),
        "router",
        config.num_local_experts,
        config.num_experts_per_tok,
        True,
        gating="softmax_after_topk",
    )


GRANITEMOE = Adapter("granitemoe", routers)
