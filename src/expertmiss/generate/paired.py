"""An arm's answers against the reference's, problem by problem."""

from __future__ import annotations

from collections.abc import Sequence

from scipy.stats import binomtest


def first_divergence(tokens: Sequence[int], reference: Sequence[int]) -> int | None:
    """Position of the first token that differs, the end of the shorter continuation included; None where both are equal."""
    for position, (one, other) in enumerate(zip(tokens, reference, strict=False)):
        if one != other:
            return position
    return None if len(tokens) == len(reference) else min(len(tokens), len(reference))


def token_agreement(tokens: Sequence[int], reference: Sequence[int]) -> float:
    """Share of positions with the same token, over the longer of the two continuations."""
    return sum(one == other for one, other in zip(tokens, reference, strict=False)) / max(len(tokens), len(reference))


def mcnemar(gained: int, lost: int) -> float:
    """Exact two-sided p of McNemar's test: ``gained`` problems only the arm solves, ``lost`` ones only the reference does."""
    return 1.0 if gained + lost == 0 else float(binomtest(gained, gained + lost, 0.5).pvalue)
