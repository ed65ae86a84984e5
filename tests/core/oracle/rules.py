"""Section "Miss rules": the requested set X of the re-routing rules, and what a miss is answered by."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from .scores import View

REROUTING = ("cache_prior", "max_rank")
FETCH, SUBSTITUTE, DROP = "fetch", "substitute", "drop"


class PriorState:
    """`cache_prior`'s only state: the running mean, over this layer's steps, of max z - min z over all E."""

    def __init__(self) -> None:
        self.total, self.steps = 0.0, 0

    def delta(self, view: View) -> float:
        """Take this step in and return the mean."""
        self.total += max(view.z) - min(view.z)
        self.steps += 1
        return self.total / self.steps


def requested_set(rule: dict[str, Any], view: View, resident: Collection[int], prior: PriorState) -> list[int]:
    """X in true rank order. `resident`: experts of this layer in R as it is now (after landing)."""
    K = view.model.top_k
    if rule["name"] == "cache_prior":
        bonus = rule["lambda"] * prior.delta(view)
        raised = {expert: view.z[expert] + (bonus if expert in resident or view.rank[expert] < rule["J"] else 0.0) for expert in view.order}
        chosen = sorted(view.order, key=lambda expert: (-raised[expert], -view.z[expert], expert))[:K]
    elif rule["name"] == "max_rank":
        chosen = view.order[: rule["J"]]
        chosen += [expert for expert in view.order[rule["J"] : rule["M"]] if expert in resident]
        chosen += [expert for expert in view.order if expert not in chosen]
        chosen = chosen[:K]
    else:
        chosen = view.S
    return sorted(chosen, key=lambda expert: view.rank[expert])


def answer_to_miss(rule: dict[str, Any], view: View, expert: int) -> str:
    """fetch | substitute | drop for a call that is not resident."""
    name, K = rule["name"], view.model.top_k
    if name in REROUTING or name == "fetch_all":
        return FETCH
    rank = view.rank[expert]
    if name == "substitute_all":
        return SUBSTITUTE
    if name == "first_choice":
        return FETCH if rank == 0 else SUBSTITUTE
    if name == "threshold":
        return FETCH if rank == 0 or view.w[expert] >= rule["tau"] else SUBSTITUTE
    if name == "cumulative":
        before = 0.0
        for earlier in view.S[:rank]:
            before += view.w[earlier]
        if before <= rule["T1"]:
            return FETCH
        return DROP if before > rule["T2"] else SUBSTITUTE
    if name == "score_margin":
        if len(view.order) <= K:
            return FETCH
        ratio, unit = score_ratio(view, expert)
        return FETCH if ratio >= (1.0 + rule["alpha"]) * unit else SUBSTITUTE
    if name == "drop_cold":
        return FETCH if rank == 0 or view.w[expert] >= rule["F"] / K else DROP
    raise ValueError(f"unknown miss rule {name}")


def score_ratio(view: View, expert: int) -> tuple[float, float]:
    """(s_i, s_(K+1)) up to a common factor: softmax kinds as (exp(z_i - z_(K+1)), 1), sigmoid as the scores themselves."""
    next_best = view.order[view.model.top_k]
    if view.model.gating == "sigmoid":
        return view.s[expert], view.s[next_best]
    return view.exp(view.z[expert] - view.z[next_best]), 1.0


def may_substitute(rule: dict[str, Any], view: View, expert: int) -> bool:
    """Whether the rule lets this resident stand in: `score_margin` wants s in ((1-alpha) s_(K+1), s_(K+1)]."""
    if rule["name"] != "score_margin":
        return True
    ratio, unit = score_ratio(view, expert)
    return bool((1.0 - rule["alpha"]) * unit < ratio <= unit)
