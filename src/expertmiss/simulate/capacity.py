"""From a resident share to a number of experts."""

from __future__ import annotations

import math

from expertmiss.errors import UserError


def holds_a_token(residency: float, experts: int, top_k: int) -> bool:
    """Whether a resident share holds the experts of one token, C >= K."""
    return residency * experts + 0.5 >= top_k


def resident_experts(residency: float, experts: int, top_k: int, option: str = "simulate.residency") -> int:
    """C for a resident share: the integer nearest to ``residency * experts`` (halves up). ``option`` is named in errors.

    Raises:
        UserError: C < K, since a token's own experts would not fit, or C > E.
    """
    if not 0 < residency <= 1:
        raise UserError(f"{option}: {residency:g} is not a share; use a value above 0 and at most 1")
    capacity = math.floor(residency * experts + 0.5)
    if not top_k <= capacity <= experts:
        raise UserError(
            f"{option}: {residency:g} of {experts} experts is C = {capacity}, but K <= C <= E must hold (K = {top_k}); "
            f"use a share between {top_k / experts:.3g} and 1"
        )
    return capacity
