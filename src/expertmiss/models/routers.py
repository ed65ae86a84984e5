"""Reading a model's routers: which modules they are, and what they answer in a forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from expertmiss.errors import UserError
from expertmiss.models.adapters import ADAPTERS, RouterModule
from expertmiss.models.adapters.base import Gating


@dataclass(frozen=True)
class Geometry:
    """What all routers of a model share; ``layers`` counts the layers with experts, ``layer_indices`` are their decoder layers."""

    layers: int
    layer_indices: list[int]
    experts: int
    top_k: int
    gating: Gating
    normalise: bool
    scale: float
    bias: list[list[float]] | None
    groups: dict[str, Any] | None


@dataclass(frozen=True)
class RouterAnswer:
    """One layer's answer: ``logits`` [T, E] float32 before softmax or sigmoid, as the model computed them; ``ids`` [T, K] int64."""

    logits: npt.NDArray[np.float32]
    ids: npt.NDArray[np.int64]


def router_modules(model: Any) -> list[RouterModule]:
    """The routers of ``model``, by rising layer.

    Raises:
        UserError: the architecture has no adapter, or the model no MoE layer.
    """
    kind = model.config.model_type
    if kind not in ADAPTERS:
        raise UserError(
            f"model type '{kind}': no router adapter; supported: {', '.join(sorted(ADAPTERS))} (src/expertmiss/models/adapters says how to add one)"
        )
    found = ADAPTERS[kind].routers(model)
    if not found:
        raise UserError(f"model type '{kind}': this model has no MoE layer; choose a Mixture-of-Experts model")
    return found


class RouterRecorder:
    """Runs a model and returns its routers' answers.

    Args:
        model: a loaded causal language model.

    Raises:
        UserError: as :func:`router_modules`.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.routers = router_modules(model)
        first = self.routers[0]
        bias = None if first.bias is None else [router.bias.tolist() for router in self.routers if router.bias is not None]
        groups = (
            None if first.groups is None else {"count": first.groups.count, "allowed": first.groups.allowed, "score": first.groups.score}
        )
        self.geometry = Geometry(
            len(self.routers), [router.layer for router in self.routers], first.experts, first.top_k, first.gating, first.normalise,
            first.scale, bias, groups,
        )  # fmt: skip

    @torch.inference_mode()
    def run(self, tokens: Tensor) -> list[RouterAnswer]:
        """Answers per layer for ``tokens`` [B, T] (int64), rows document after document (B * T rows)."""
        return self.run_with_logits(tokens, keep_logits=False)[0]

    @torch.inference_mode()
    def run_with_logits(self, tokens: Tensor, keep_logits: bool = True) -> tuple[list[RouterAnswer], Tensor]:
        """As :meth:`run`, and the model's output logits [B, T, V] (of the last position only unless ``keep_logits``)."""
        answers: dict[int, RouterAnswer] = {}

        def reader(router: RouterModule) -> Any:
            def read(module: torch.nn.Module, inputs: Any, output: Any) -> None:
                answers[router.layer] = RouterAnswer(
                    router.logits(output).float().reshape(-1, router.experts).cpu().numpy(),
                    router.ids(output).reshape(-1, router.top_k).cpu().numpy(),
                )

            return read

        hooks = [router.module.register_forward_hook(reader(router)) for router in self.routers]
        try:
            device = self.model.get_input_embeddings().weight.device
            output = self.model(input_ids=tokens.to(device), use_cache=False, logits_to_keep=0 if keep_logits else 1)
        finally:
            for hook in hooks:
                hook.remove()
        return [answers[router.layer] for router in self.routers], output.logits
