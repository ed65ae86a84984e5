"""Decoding of a batch with a K/V cache: the most probable token at every step, or drawn ones.

Prompts are padded on the left; padded positions are masked in the attention and take no position id, and an expert's product does not
depend on the other rows of the batch, so what a router says about padding changes no row. A row that has ended leaves the batch at once:
nothing is decoded, routed or metered for it any more. Rows agree with a batch of one up to the rounding of matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

Ended = Callable[[int, list[int]], bool]
Pick = Callable[[torch.Tensor, Sequence[int], int], torch.Tensor]
"""Next tokens [B] from logits [B, V], given the indices of the rows in the batch and the position in the continuation."""
Around = Callable[[Sequence[int]], AbstractContextManager[None]]


def _nothing(rows: Sequence[int]) -> AbstractContextManager[None]:
    return nullcontext()


def most_probable(logits: torch.Tensor, rows: Sequence[int], step: int) -> torch.Tensor:
    """Greedy decoding."""
    return logits.argmax(-1)


def drawn(temperature: float, keys: Sequence[tuple[int, ...]]) -> Pick:
    """Draws from softmax(logits / ``temperature``), by one uniform number a row and position that depends on the row's key alone.

    Rows of the same key (a problem's arms) use the same numbers, so that their difference is the policies' and not the draw's; a number does not
    depend on the batch.

    Args:
        keys: per row, e.g. (seed, problem, sample), each >= 0.
    """

    def pick(logits: torch.Tensor, rows: Sequence[int], step: int) -> torch.Tensor:
        uniform = torch.tensor(
            [np.random.default_rng([*keys[row], step]).random() for row in rows], dtype=torch.float64, device=logits.device
        )
        share = torch.softmax(logits.double() / temperature, -1).cumsum(-1)
        return torch.searchsorted(share, uniform[:, None] * share[:, -1:], right=True)[:, 0].clamp(max=logits.shape[-1] - 1)

    return pick


@torch.inference_mode()
def continued(
    model: Any, prompts: Sequence[Sequence[int]], *, cap: int, eos: int | None, ended: Ended, copies: int = 1, around: Around = _nothing,
    pick: Pick = most_probable,
) -> list[list[int]]:  # fmt: skip
    """Tokens that ``model`` continues each prompt with.

    The prompts are one forward pass; then every step feeds one token a row. Row ``item * copies + copy`` belongs to prompt ``item``.

    Args:
        prompts: token ids, none empty.
        cap: most tokens of a continuation, at least 1.
        eos: token that ends a continuation (it is returned as its last one), None for none.
        ended: whether a row's continuation so far, given its index and tokens, is complete.
        copies: rows that continue each prompt, from the same K/V cache and the same first token.
        around: entered around every decode step with the indices of the rows in the batch, in order; never around the prompts.
        pick: chooses the next tokens.

    Returns:
        per row the continuation, 1 to ``cap`` tokens.
    """
    from transformers import DynamicCache

    device = model.get_input_embeddings().weight.device
    width = max(map(len, prompts))
    tokens = torch.zeros((len(prompts), width), dtype=torch.int64)
    mask = torch.zeros_like(tokens)
    for row, prompt in enumerate(prompts):
        tokens[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    tokens, mask = tokens.to(device), mask.to(device)
    cache = DynamicCache(config=model.config)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    state = {"past_key_values": cache, "use_cache": True, "logits_to_keep": 1}
    logits = model(input_ids=tokens, attention_mask=mask, position_ids=positions, **state).logits[:, -1]
    if copies > 1:
        cache.reorder_cache(torch.arange(len(prompts), device=device).repeat_interleave(copies))  # the one form that every cache has
        mask, positions, logits = (tensor.repeat_interleave(copies, 0) for tensor in (mask, positions, logits))
    rows = list(range(len(prompts) * copies))
    position, chosen, step = positions[:, -1:], pick(logits, rows, 0), 0
    made: list[list[int]] = [[] for _ in rows]
    while True:
        for row, token in zip(rows, chosen.tolist(), strict=True):
            made[row].append(token)
        places = [p for p, row in enumerate(rows) if made[row][-1] != eos and len(made[row]) < cap and not ended(row, made[row])]
        if not places:
            return made
        if len(places) < len(rows):
            kept = torch.tensor(places, device=device)
            cache.reorder_cache(kept)
            mask, position, chosen = mask[kept], position[kept], chosen[kept]
            rows = [rows[place] for place in places]
        mask = torch.cat([mask, mask.new_ones(len(rows), 1)], 1)
        position = position + 1
        with around(rows):
            logits = model(input_ids=chosen[:, None], attention_mask=mask, position_ids=position, **state).logits[:, -1]
        step += 1
        chosen = pick(logits, rows, step)


def greedy(model: Any, prompts: Sequence[Sequence[int]], **options: Any) -> list[list[int]]:
    """:func:`continued` with the most probable token at every step."""
    return continued(model, prompts, pick=most_probable, **options)
