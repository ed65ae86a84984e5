"""The hook: a router's answer is replaced by the core's decision, row by row of the batch.

Under scope ``layer`` every layer has its own pool and its own token count, so all tokens of a sequence can be walked, in order, inside one
layer before the next layer runs; a whole-sequence forward pass is then exact. A pool shared by all layers needs the stepped form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from expertmiss._core import Stepper
from expertmiss.errors import UserError
from expertmiss.models.adapters import RouterModule


@dataclass
class Decisions:
    """What was executed: ``ids`` and ``weights`` [B, L, T, K] (unused places: id 0, weight 0), router ``logits`` [B, L, T, E] if kept."""

    ids: list[list[NDArray[np.uint16]]] = field(default_factory=list)
    weights: list[list[NDArray[np.float64]]] = field(default_factory=list)
    logits: list[list[NDArray[np.float32]]] = field(default_factory=list)


@contextmanager
def decided(
    routers: Sequence[RouterModule],
    steppers: Sequence[Stepper],
    pool: ThreadPoolExecutor,
    kept: Decisions | None = None,
    forced: Decisions | None = None,
    first: int = 0,
) -> Iterator[None]:
    """Within the block the model's routers answer with the core's decisions.

    Args:
        routers: the model's routers, by rising layer.
        steppers: one per sequence of the batch, reset to that sequence's document.
        pool: threads; the core releases the GIL.
        kept: filled with what was executed and what the routers said, appended token after token.
        forced: executed instead of the core's decisions (sequences must be fed from their start; agreement gates use it).
        first: index among all routers of the first one given.

    Raises:
        UserError: a router answers what is not a number.
    """
    if kept is not None:
        for part in (kept.ids, kept.weights, kept.logits):
            part.extend([] for _ in routers)
    position = [0] * len(routers)

    def hook(index: int, router: RouterModule) -> Any:
        def replace(module: torch.nn.Module, inputs: Any, output: Any) -> Any:
            logits = router.logits(output)
            z = logits.detach().to("cpu", torch.float64 if logits.dtype == torch.float64 else torch.float32).numpy()
            z = z.reshape(len(steppers), -1, router.experts)
            if forced is None:
                ids = np.zeros((*z.shape[:2], router.top_k), np.int64)
                weights = np.zeros(ids.shape)

                def decide(row: int) -> None:
                    try:
                        if z.shape[1] == 1:  # also where layers share a pool
                            one_ids, one_weights = steppers[row].step(first + index, z[row, 0])
                            ids[row, 0, : len(one_ids)], weights[row, 0, : len(one_ids)] = one_ids, one_weights
                        else:
                            ids[row], weights[row], _ = steppers[row].steps(first + index, z[row])
                    except ValueError as problem:
                        raise UserError(
                            f"document {steppers[row].document}, layer {router.layer}, row {row} of the batch: {problem}"
                        ) from None

                list(pool.map(decide, range(len(steppers))))
            else:
                span = slice(position[index], position[index] + z.shape[1])
                ids, weights = forced.ids[index][0][:, span].astype(np.int64), forced.weights[index][0][:, span]
            position[index] += z.shape[1]
            if kept is not None:
                kept.ids[index].append(ids.astype(np.uint16))
                kept.weights[index].append(weights)
                kept.logits[index].append(z)
            flat_ids = torch.from_numpy(ids).reshape(-1, router.top_k).to(logits.device)
            flat_weights = torch.from_numpy(weights).reshape(-1, router.top_k).to(logits.device)
            return router.answer(output, flat_weights, flat_ids)

        return replace

    handles = [router.module.register_forward_hook(hook(index, router)) for index, router in enumerate(routers)]
    modules: list[Any] = [router.module for router in routers if hasattr(router.module, "top_k")]
    own_choices = [(module, module.top_k) for module in modules]
    try:
        for module, _ in own_choices:  # its choice is replaced anyway, and torch.topk of 8 in 256 takes longer than the core's step
            module.top_k = 1
        yield
    finally:
        for module, top_k in own_choices:
            module.top_k = top_k
        for handle in handles:
            handle.remove()
        if kept is not None:
            for part in (kept.ids, kept.weights, kept.logits):
                part[:] = [[np.concatenate(pieces, axis=1)] if pieces else [] for pieces in part]
