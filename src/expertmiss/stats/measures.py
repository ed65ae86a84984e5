"""The measures of a policy, as ratios of sums over documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALL = "all"  # name of the group that holds every domain
HEAVY = 0.15  # the paper's rule: gate weight from which a miss is worth waiting for


@dataclass(frozen=True)
class Measure:
    """Weighted meters over meters: ``numerator`` and ``denominator`` map meters of ``cells.parquet`` to factors.

    ``unit`` is ``share`` (shown in percent), ``weight`` (gate weight, 0 to 1), ``nats`` or ``experts``.
    """

    name: str
    title: str
    unit: str
    definition: str
    numerator: Mapping[str, int] = field(default_factory=dict)
    denominator: Mapping[str, int] = field(default_factory=dict)

    def columns(self, meters: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """[N, 2, ...]: numerator and denominator from meters [N, ...]."""
        parts = [
            sum(factor * np.asarray(meters[name], dtype=np.float64) for name, factor in part.items())
            for part in (self.numerator, self.denominator)
        ]
        return np.stack(parts, axis=1)


_CALLS = {"calls": 1}
_TOKEN_LAYERS = {"token_layers": 1}
_MISSES = {"compulsory": 1, "collision": 1, "capacity_misses": 1}

MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure("hit_rate", "Hit rate", "share", "calls whose expert is resident", {"hits": 1}, _CALLS),
        Measure("miss_rate", "Miss rate", "share", "one minus the hit rate", {"calls": 1, "hits": -1}, _CALLS),
        Measure(
            "fetched_share", "Fetched", "share", "calls that wait for a fetch, fallbacks included",
            {"fetches": 1, "fallback_fetches": 1}, _CALLS,
        ),
        Measure("substituted_share", "Substituted", "share", "calls answered by another, resident expert", {"substituted": 1}, _CALLS),
        Measure(
            "dropped_share", "Dropped", "share", "calls left out, fallbacks included", {"dropped": 1, "fallback_drops": 1}, _CALLS
        ),
        Measure(
            "mean_mass", "Substituted gate mass", "weight", "gate weight of substituted calls, per token-layer", {"mass": 1}, _TOKEN_LAYERS
        ),
        Measure("mass_per_substitution", "Mass per substitution", "weight", "gate weight of a substituted call", {"mass": 1}, {"substituted": 1}),
        Measure("agreement", "Agreement", "share", "executed experts that the router chose, over K", {"agreement": 1}, _TOKEN_LAYERS),
        Measure("kl", "KL divergence", "nats", "KL(executed || router), per token-layer; the router's side is over all E experts, so lossless execution of its K choices is above 0 too", {"kl": 1}, _TOKEN_LAYERS),
        Measure(
            "loads", "Experts loaded", "experts", "fetches and background landings, per token-layer",
            {"fetches": 1, "fallback_fetches": 1, "landings": 1}, _TOKEN_LAYERS,
        ),
        Measure("compulsory_share", "Compulsory misses", "share", "misses of experts not resident since the reset", {"compulsory": 1}, _MISSES),
        Measure(
            "collision_share", "Collision misses", "share", "misses of experts that were evicted without one hit",
            {"collision": 1}, _MISSES,
        ),
        Measure("capacity_share", "Capacity misses", "share", "the remaining misses", {"capacity_misses": 1}, _MISSES),
    )
}  # fmt: skip

METERS: tuple[str, ...] = tuple(
    sorted({name for measure in MEASURES.values() for part in (measure.numerator, measure.denominator) for name in part})
)
