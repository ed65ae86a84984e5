"""Batched greedy decoding equals one row at a time without cache or padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from expertmiss.generate.decode import greedy
from expertmiss.models.adapters import ADAPTERS
from tests.models.tiny import tiny_model

DRAW = np.random.default_rng(3)
PROMPTS = [DRAW.integers(1, 64, length).tolist() for length in (5, 1, 12, 12, 7)]


def never(row: int, ids: list[int]) -> bool:
    return False


def alone(model: Any, prompt: Sequence[int], count: int) -> list[int]:
    ids = list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("kind", sorted(set(ADAPTERS) - {"qwen3_next"}))  # its two forms of linear attention differ by rounding
def test_a_padded_batch_equals_single_rows(kind: str) -> None:
    model = tiny_model(kind, torch.float64)
    expected = [alone(model, prompt, 10) for prompt in PROMPTS]
    assert greedy(model, PROMPTS, cap=10, eos=None, ended=never) == expected
    assert len({tuple(ids) for ids in expected}) == len(PROMPTS)  # a mix-up of rows would show


def test_rows_end_by_themselves() -> None:
    model = tiny_model("qwen3_moe", torch.float64)
    expected = [alone(model, prompt, 10) for prompt in PROMPTS]
    eos = expected[0][3]
    limits = [10, 2, 10, 5, 10]
    made = greedy(model, PROMPTS, cap=8, eos=eos, ended=lambda row, ids: len(ids) == limits[row])
    for row, (ids, whole) in enumerate(zip(made, expected, strict=True)):
        length = min(8, limits[row], whole.index(eos) + 1 if eos in whole else 10)
        assert ids == whole[:length]
    assert len({len(ids) for ids in made}) >= 3


def test_copies_share_the_prompt_and_are_named_to_the_hook() -> None:
    model = tiny_model("qwen3_moe", torch.float64)
    seen: list[list[int]] = []

    @contextmanager
    def around(rows: Sequence[int]) -> Iterator[None]:
        seen.append(list(rows))
        yield

    made = greedy(model, PROMPTS[:2], cap=4, eos=None, ended=lambda row, ids: row == 1 and len(ids) == 2, copies=2, around=around)
    expected = [alone(model, prompt, 4) for prompt in PROMPTS[:2]]
    assert made == [expected[0], expected[0][:2], expected[1], expected[1]]
    assert seen == [[0, 1, 2, 3], [0, 2, 3], [0, 2, 3]]


def test_one_token() -> None:
    model = tiny_model("qwen3_moe", torch.float64)
    assert greedy(model, PROMPTS[:1], cap=1, eos=None, ended=never) == [alone(model, PROMPTS[0], 1)]
