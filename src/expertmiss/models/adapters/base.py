"""What the project has to know about an architecture's routers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

Gating = Literal["softmax", "sigmoid", "softmax_after_topk"]


@dataclass(frozen=True)
class Groups:
    """Group-limited routing: only the ``allowed`` best of ``count`` groups may be chosen from, by the ``score`` of a group."""

    count: int
    allowed: int
    score: Literal["max", "top2_sum"]


@dataclass(frozen=True)
class RouterModule:
    """One layer's router.

    Attributes:
        layer: index of the decoder layer (dense layers leave gaps).
        module: the module whose output a forward hook reads.
        experts: E.
        top_k: K.
        gating: how scores come from logits.
        normalise: whether executed weights are normalised over the chosen experts.
        scale: factor on the executed weights, applied last.
        bias: selection bias [E] in float64, or None.
        groups: group limits, or None.
        logits: the raw router logits [T, E], before softmax or sigmoid, within the module's output.
        ids: the chosen experts [T, K] within the module's output.
        answer: the module's output with other weights [T, K] and ids [T, K] in their place.
    """

    layer: int
    module: nn.Module
    experts: int
    top_k: int
    gating: Gating
    normalise: bool
    scale: float
    bias: npt.NDArray[np.float64] | None
    groups: Groups | None
    logits: Callable[[Any], Tensor]
    ids: Callable[[Any], Tensor]
    answer: Callable[[Any, Tensor, Tensor], Any]


@dataclass(frozen=True)
class Adapter:
    """An architecture: its ``model_type`` and a function from a loaded model to its routers, by rising layer."""

    model_type: str
    routers: Callable[[Any], list[RouterModule]]


def first(output: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """First of (logits, weights, ids)."""
    return output[0]


def third(output: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Third of (logits, weights, ids)."""
    return output[2]


def answer_triple(output: tuple[Tensor, Tensor, Tensor], weights: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(logits, ``weights``, ``ids``), the weights in the type of those they replace."""
    return output[0], weights.to(output[1].dtype), ids


def layers_with(model: Any, attribute: str, block: str = "mlp") -> list[tuple[int, Any]]:
    """(layer index, ``layer.<block>``) of the decoder layers whose block has ``attribute``."""
    blocks = [(index, getattr(layer, block)) for index, layer in enumerate(model.model.layers)]
    return [(index, found) for index, found in blocks if hasattr(found, attribute)]


def softmax_triples(
    blocks: list[tuple[int, Any]], router: str, experts: int, top_k: int, normalise: bool, gating: Gating = "softmax"
) -> list[RouterModule]:
    """Routers without bias, groups or scale that answer (logits before softmax, weights, ids): most of transformers' architectures."""
    return [
        RouterModule(
            layer=index, module=getattr(block, router), experts=experts, top_k=top_k, gating=gating, normalise=normalise, scale=1.0,
            bias=None, groups=None, logits=first, ids=third, answer=answer_triple,
        )
        for index, block in blocks
    ]  # fmt: skip
