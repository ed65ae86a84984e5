"""Combinations that the page refuses before a run starts."""

from __future__ import annotations

import math
from typing import Any

from .rules import REROUTING
from .scores import Model


def check(model: Model, policy: dict[str, Any], capacity: int) -> None:
    """ValueError with the reason when the page refuses this policy on this model."""
    rule, admission, eviction = policy["miss_rule"], policy["admission"], policy["eviction"]
    E, K = model.experts, model.top_k
    reasons = {
        "K <= C <= E": not K <= capacity <= E,
        "score_margin with a selection bias": rule["name"] == "score_margin" and model.bias is not None,
        "cache_prior with a bias or group limits": rule["name"] == "cache_prior" and (model.bias is not None or model.groups is not None),
        "0 <= J <= K <= M <= E": rule["name"] == "max_rank" and not 0 <= rule["J"] <= K <= rule["M"] <= E,
        "T1 <= T2": rule["name"] == "cumulative" and not rule["T1"] <= rule["T2"],
        "inherit with a re-routing rule": policy["weights"]["name"] == "inherit" and rule["name"] in REROUTING,
        "substitute_all whose cache would never change": rule["name"] == "substitute_all"
        and (admission["name"] == "fetched_only" or (admission["name"] == "background" and admission["beta"] == math.inf)),
        "delay >= 1": admission["name"] == "background" and admission["delay"] < 1,
        "opt with a rule other than fetch_all": eviction["name"] == "opt" and rule["name"] != "fetch_all",
        "half_life is a positive integer": eviction["name"] == "lfu"
        and eviction["variant"] == "half_life"
        and (eviction["half_life"] < 1 or eviction["half_life"] != int(eviction["half_life"])),
        "upload_cap >= 1": policy.get("upload_cap") is not None and policy["upload_cap"] < 1,
    }
    broken = [reason for reason, holds in reasons.items() if holds]
    if broken:
        raise ValueError("refused: " + "; ".join(broken))
