"""Which names and parameters a policy may hold. Ranges and forbidden combinations are the core's (``_core.check_policy``)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Parameters:
    """Parameters of one named choice: those that must be given, and those with a default."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def known(self) -> tuple[str, ...]:
        return (*self.required, *self.optional)


NONE = Parameters()

SECTIONS: dict[str, dict[str, Parameters]] = {
    "miss_rule": {
        "fetch_all": NONE,
        "substitute_all": NONE,
        "first_choice": NONE,
        "threshold": Parameters(("tau",)),
        "cumulative": Parameters(("T1", "T2")),
        "score_margin": Parameters(("alpha",)),
        "cache_prior": Parameters(("lambda", "J")),
        "max_rank": Parameters(("J", "M")),
        "drop_cold": Parameters(("F",)),
    },
    "chooser": {"router_rank": NONE, "random": Parameters((), ("seed",)), "matched_random": Parameters(("margin",), ("seed",))},
    "weights": {"own": NONE, "inherit": NONE, "scaled": Parameters(("a",))},
    "eviction": {"lru": NONE, "fifo": NONE, "lfu": Parameters(("variant",), ("half_life",)), "lfru": NONE, "opt": NONE},
    "admission": {"fetched_only": NONE, "every_miss": NONE, "background": Parameters(("beta",), ("delay",))},
}
"""Choices with parameters, by section."""

WORDS: dict[str, tuple[str, ...]] = {
    "fallback": ("fetch", "drop"),
    "update": ("requests", "executed"),
    "scope": ("layer", "global"),
    "state": ("reset", "carry"),
    "prompt": ("ignore",),
    "initial": ("warm", "cold", "random"),
}
"""Choices that are a single word."""

OTHERS = ("name", "upload_cap")
LFU_VARIANTS = ("lifetime", "in_cache", "half_life")
