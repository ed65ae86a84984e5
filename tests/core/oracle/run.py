"""Resets, starts and whole traces: the closed-loop `Oracle`, and `simulate` on top of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import evictions, refusals, step
from .meters import Meters
from .rules import PriorState
from .scores import Exp, Model, View
from .state import Key, Pool, insertion_digest, insertion_orders
from .step import Call, Landing, Outcome


class Oracle:
    """One policy on one stream. Call `reset(document)` where the document id changes, then `step(layer, z)` for layers 0 to L-1 in turn."""

    def __init__(
        self,
        model: Model,
        policy: dict[str, Any],
        capacity: int,
        exp: Exp,
        counts: Sequence[Sequence[int]] | None = None,
        seed: int = 0,
    ) -> None:
        refusals.check(model, policy, capacity)
        self.model, self.policy, self.capacity, self.exp = model, policy, capacity, exp
        self.orders = insertion_orders(policy["initial"], policy["scope"], model.layers, model.experts, capacity, counts, seed)
        self.digest = insertion_digest(self.orders)
        self.document = -1
        self.future: dict[Key, list[int]] | None = None
        self._start()

    def _start(self) -> None:
        size = self.capacity if self.policy["scope"] == "layer" else self.capacity * self.model.layers
        self.pools = [Pool(size) for _ in self.orders]
        for pool, order in zip(self.pools, self.orders, strict=True):
            for key in order:
                pool.insert(key, in_cache_freq=True)
        self.priors = [PriorState() for _ in range(self.model.layers)]
        self.t = -1

    def reset(self, document: int) -> None:
        """The document id changed; `carry` keeps every counter, t included."""
        first = self.document == -1
        self.document = document
        if first or self.policy["state"] == "reset":
            self._start()
        self.meters = Meters()

    def step(self, layer: int, z: Sequence[float], lse: float | None = None, arrived: list[Key] | None = None) -> Outcome:
        """One (token, layer); `arrived` as for `step.land`."""
        if layer == 0:
            self.t += 1
        pool = self.pools[layer if self.policy["scope"] == "layer" else 0]
        view = View(self.model, layer, z, self.exp, lse)
        landings: list[Landing] = []
        if self.policy["scope"] == "layer" or layer == 0:
            evictions.begin_token(self.policy["eviction"], pool, self.t)
            landings = step.land(self.policy, pool, self.document, self.t, self.meters, arrived)
        next_use = None if self.future is None else self._next_use(layer)
        outcome = step.decide(self.policy, pool, self.priors[layer], view, self.document, self.t, next_use, self.meters)
        outcome.landings = landings
        return outcome

    def _next_use(self, layer: int) -> evictions.NextUse:
        """First serial position after this step's own requests at which a key is requested (infinite: never before the next reset)."""
        assert self.future is not None
        future, now = self.future, (self.t * self.model.layers + layer + 1) * self.model.top_k

        def position(key: Key) -> float:
            return next((use for use in future.get(key, []) if use >= now), math.inf)

        return position

    def foresee(self, tokens: Sequence[Sequence[Sequence[float]]], lse: Sequence[Sequence[float]] | None) -> None:
        """For `opt`: serial positions (t, layer, rank) of all requests of this stretch, rising. tokens: [T][L][E]."""
        L, K = self.model.layers, self.model.top_k
        self.future = {}
        for t, rows in enumerate(tokens):
            for layer, z in enumerate(rows):
                for rank, expert in enumerate(View(self.model, layer, z, self.exp, None if lse is None else lse[t][layer]).S):
                    self.future.setdefault((layer, expert), []).append((t * L + layer) * K + rank)


class Result:
    """calls and landings in serial order; meters per stretch of equal document ids; digest of the start."""

    def __init__(self, digest: str) -> None:
        self.calls: list[Call] = []
        self.landings: list[Landing] = []
        self.documents: list[int] = []
        self.meters: list[Meters] = []
        self.digest = digest


def simulate(
    z: Sequence[Sequence[Sequence[float]]],
    documents: Sequence[int],
    model: Model,
    policy: dict[str, Any],
    capacity: int,
    exp: Exp,
    counts: Sequence[Sequence[int]] | None = None,
    seed: int = 0,
    lse: Sequence[Sequence[float]] | None = None,
) -> Result:
    """Run one policy over a trace. z: [T][L][E] router logits; documents: [T]; lse: [T][L], where the trace carries it."""
    oracle = Oracle(model, policy, capacity, exp, counts, seed)
    result = Result(oracle.digest)
    for token, document in enumerate(documents):
        if token == 0 or document != documents[token - 1]:
            oracle.reset(document)
            result.documents.append(document)
            result.meters.append(oracle.meters)
            if policy["eviction"]["name"] == "opt" and (token == 0 or policy["state"] == "reset"):
                end = len(documents)
                if policy["state"] == "reset":
                    end = next((u for u in range(token, end) if documents[u] != document), end)
                oracle.foresee(z[token:end], None if lse is None else lse[token:end])
        for layer in range(model.layers):
            outcome = oracle.step(layer, z[token][layer], None if lse is None else lse[token][layer])
            result.calls += outcome.calls
            result.landings += outcome.landings
    return result
