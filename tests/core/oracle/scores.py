"""Section "Setting": gate probabilities, selection scores, rank order, S and gate weights of one token at one layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Exp = Callable[[float], float]


@dataclass(frozen=True)
class Model:
    """What a trace's metadata says about routing. `bias`: [L][E] or None. `groups`: {count, allowed, score} or None."""

    layers: int
    experts: int
    top_k: int
    gating: str = "softmax"  # softmax | sigmoid | softmax_after_topk
    normalise: bool = True
    bias: Sequence[Sequence[float]] | None = None
    groups: dict[str, Any] | None = None
    scale: float = 1.0

    @property
    def normalises(self) -> bool:
        """softmax-after-top-K renormalises over the executed experts by construction."""
        return self.normalise or self.gating == "softmax_after_topk"


def log_sum_exp(z: Sequence[float], exp: Exp) -> float:
    """log of the sum of e^z over all E, shifted by the maximum."""
    top = max(z)
    total = 0.0
    for value in z:
        total += exp(value - top)
    return top + math.log(total)


def gate_probabilities(model: Model, z: Sequence[float], lse: float, exp: Exp) -> list[float]:
    """p over all E: softmax of z, or the sigmoid of each."""
    if model.gating == "sigmoid":
        return [1.0 / (1.0 + exp(-value)) for value in z]
    return [exp(value - lse) for value in z]


def allowed_experts(model: Model, s: Sequence[float]) -> list[int]:
    """All experts, or those of the best groups by max or top-2 sum of s, ties to the lower group."""
    if model.groups is None:
        return list(range(model.experts))
    count, allowed, kind = model.groups["count"], model.groups["allowed"], model.groups["score"]
    size = model.experts // count
    group_score = []
    for group in range(count):
        falling = sorted(s[group * size : (group + 1) * size], reverse=True)
        group_score.append(falling[0] if kind == "max" else sum(falling[1:2], falling[0]))
    best = sorted(range(count), key=lambda group: (-group_score[group], group))[:allowed]
    experts = [expert for expert in range(model.experts) if expert // size in best]
    if len(experts) < model.top_k:
        raise ValueError("fewer than K allowed experts")
    return experts


class View:
    """Everything the router said at one (token, layer).

    z, p, s: [E]. order: the allowed experts in rank order. rank: expert -> position in `order`. S: the first K.
    """

    def __init__(self, model: Model, layer: int, z: Sequence[float], exp: Exp, lse: float | None = None) -> None:
        self.model, self.layer, self.exp = model, layer, exp
        self.z = [float(value) for value in z]
        if not all(math.isfinite(value) for value in self.z):
            raise ValueError("non-finite router logit")
        self.lse = log_sum_exp(self.z, exp) if lse is None else lse
        self.p = gate_probabilities(model, self.z, self.lse, exp)
        bias = None if model.bias is None else model.bias[layer]
        self.s = self.p if bias is None else [p + float(b) for p, b in zip(self.p, bias, strict=True)]
        by = self.z if bias is None else self.s
        self.allowed = allowed_experts(model, self.s)
        self.order = sorted(self.allowed, key=lambda expert: (-by[expert], expert))
        self.rank = {expert: rank for rank, expert in enumerate(self.order)}
        self.S = self.order[: model.top_k]
        self._top_of_s = max(self.z[expert] for expert in self.S)
        self._sum_of_s = 0.0
        for expert in self.S:
            self._sum_of_s += self._unnormalised(expert)
        if self._sum_of_s == 0.0:
            raise ValueError("gate weights of S sum to zero")
        self.w = {expert: self._unnormalised(expert) / self._sum_of_s for expert in self.S}

    def _unnormalised(self, expert: int) -> float:
        if self.model.gating == "sigmoid":
            return self.p[expert]
        return self.exp(self.z[expert] - self._top_of_s)

    def weight(self, expert: int) -> float:
        """w of any expert: what it would carry against the sum over S (needed for rows of X outside S)."""
        return self._unnormalised(expert) / self._sum_of_s

    def normalised_over(self, experts: Sequence[int], factor: Sequence[float]) -> list[float]:
        """Weights of `experts` (order of execution), each multiplied by its factor before renormalising."""
        if not experts:
            return []
        if self.model.gating == "sigmoid":
            terms = [self.p[expert] * a for expert, a in zip(experts, factor, strict=True)]
        else:
            top = max(self.z[expert] for expert in experts)
            terms = [self.exp(self.z[expert] - top) * a for expert, a in zip(experts, factor, strict=True)]
        total = 0.0
        for term in terms:
            total += term
        if total == 0.0:
            raise ValueError("executed gate weights sum to zero")
        return [term / total for term in terms]
