"""Section "Measures", the parts that are counts or sums over one layer of one stretch between resets."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from .scores import View
from .state import Key, Pool

if TYPE_CHECKING:
    from .step import Call

RESWAP_WINDOW = 16
VERDICTS = ("hits", "fetches", "substituted", "dropped", "fallback_fetches", "fallback_drops")
COUNTS = ("tokens", "calls", *VERDICTS, "landings", "evictions", "wasted", "compulsory", "collision", "capacity", "reswaps")
SUMS = ("mass", "dropped_mass", "heaviest", "agreement", "kl")


class Meters:
    """`value[name][layer]`; names that never counted read as 0."""

    def __init__(self) -> None:
        self.value: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))

    def verdict(self, pool: Pool, key: Key, answer: str) -> None:
        """Paragraph 3: class of a miss, and the hit that makes an entry useful."""
        layer = key[0]
        if answer == "hit":
            pool.hit_since_entry.add(key)
            return
        if key not in pool.ever_resident:
            kind = "compulsory"
        elif key in pool.evicted_unused:
            kind = "collision"
        else:
            kind = "capacity"
        self.value[kind][layer] += 1

    def eviction(self, key: Key, unused: bool) -> None:
        """An entry left the pool; counted at the layer of the entry."""
        self.value["evictions"][key[0]] += 1
        self.value["wasted"][key[0]] += unused

    def landing(self, key: Key) -> None:
        """An admission became resident."""
        self.value["landings"][key[0]] += 1

    def step(self, pool: Pool, view: View, calls: list[Call], executed: list[int], weights: list[float], t: int) -> None:
        """Sums after paragraph 8. Re-routing rules: the calls of S \\ X count as substituted."""
        layer = view.layer
        self.value["tokens"][layer] += 1
        self.value["calls"][layer] += view.model.top_k
        X = {call.expert for call in calls}
        substituted = [view.w[expert] for expert in view.S if expert not in X]
        dropped = []
        for call in calls:
            name = VERDICTS[call.verdict]
            if name == "substituted":
                substituted.append(call.weight)
                key = (layer, call.expert)
                before = pool.last_substituted.get(key)
                self.value["reswaps"][layer] += before is not None and t - before <= RESWAP_WINDOW
                pool.last_substituted[key] = t
            else:
                self.value[name][layer] += 1
                if name in ("dropped", "fallback_drops"):
                    dropped.append(call.weight)
        self.value["substituted"][layer] += len(substituted)
        self.value["mass"][layer] += sum(substituted)
        self.value["dropped_mass"][layer] += sum(dropped)
        self.value["heaviest"][layer] += max(substituted, default=0.0)
        self.value["agreement"][layer] += len(set(executed) & set(view.S)) / view.model.top_k
        self.value["kl"][layer] += divergence(view, executed, weights)


def divergence(view: View, executed: list[int], weights: list[float]) -> float:
    """KL(executed || router) in nats: the executed weights, as a distribution, against p over all E; 0 log 0 = 0.

    Undefined (NaN) for sigmoid gates, whose p are no distribution, and where nothing is executed.
    """
    mass = sum(weights)
    if view.model.gating == "sigmoid" or mass == 0.0:
        return math.nan
    total = 0.0
    for expert, weight in zip(executed, weights, strict=True):
        q = weight / mass
        if q > 0.0:
            total += q * (math.log(q) - (view.z[expert] - view.lse))  # log p in a form that does not underflow
    return total
