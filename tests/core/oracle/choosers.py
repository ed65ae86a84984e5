"""Section "Choosers": which of the candidates of step 5 is executed in place of a substituted call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .scores import View
from .state import draw


def choose(chooser: dict[str, Any], view: View, candidates: Sequence[int], document: int, t: int, rank: int) -> int:
    """One of `candidates` (not empty, in rank order). `rank`: the true rank of the call that is substituted."""
    if chooser["name"] == "router_rank":
        return candidates[0]
    if chooser["name"] == "random":
        among = sorted(candidates)
    else:
        best = max(view.z[expert] for expert in candidates)
        among = sorted(expert for expert in candidates if view.z[expert] >= best - chooser["margin"])
    return among[draw(chooser["seed"], document, view.layer, t, rank) % len(among)]
