"""A complete policy dictionary from a few differences."""

from __future__ import annotations

from typing import Any


def policy(rule: str = "fetch_all", **changes: Any) -> dict[str, Any]:
    """`rule` with parameters through `changes["miss_rule"]`; every other key as the page's defaults."""
    chosen: dict[str, Any] = {
        "name": rule,
        "miss_rule": {"name": rule},
        "chooser": {"name": "router_rank"},
        "weights": {"name": "own"},
        "eviction": {"name": "lru"},
        "admission": {"name": "fetched_only"},
        "fallback": "fetch",
        "update": "requests",
        "scope": "layer",
        "state": "reset",
        "prompt": "ignore",
        "upload_cap": None,
        "initial": "warm",
    }
    for key, value in changes.items():
        chosen[key] = {"name": rule, **value} if key == "miss_rule" else value
    return chosen
