"""What an arm of Experiment B executes in one layer of one document, given the reference run's residents.

The residency schedule R-(t, l) is the reference's (``fetch_all``, ``lru``, warm): who is resident before the reference's own fetches at token t.
It is input here and never changes by what an arm does. Misses are S \\ R- with the arm's own S. Rank 0 is always executed truly. In a budgeted
arm the eligible misses of a token are visited by falling weight (``heavy``), rising weight (``light``) or in seeded random order (``random``,
both classes); one is substituted if its weight fits into what the budget, ``mu`` a token so far, has left, and is executed truly otherwise. A
``site`` arm substitutes one given call and nothing else. Classes and budgets are a layer's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from expertmiss import _core

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Arm:
    """One row of the batch beside the reference.

    Attributes:
        name: unique among the arms of a run.
        order: how eligible misses are visited; ``none`` substitutes nothing, ``site`` the one call ``site``.
        mu: [L] budget of gate mass per token of a document, by layer; empty where the order needs none.
        level: name of the mass level, for tables.
        forced: every call of rank >= 1 is eligible, resident or not.
        chooser: ``router_rank`` or ``random`` (uniform over R- \\ S).
        seed: of the random order; the random chooser draws with ``seed + 1``.
        site: (token, layer, rank) of a ``site`` arm; rank 0 is allowed there, and residents count as misses.
    """

    name: str
    order: str
    mu: tuple[float, ...] = ()
    level: str = ""
    forced: bool = False
    chooser: str = "router_rank"
    seed: int = 0
    site: tuple[int, int, int] | None = None

    @property
    def target(self) -> float:
        """Substituted mass per token that the budgets allow, mean over layers."""
        return float(np.mean(self.mu)) if self.mu else 0.0

    def row(self) -> dict[str, Any]:
        """The arm as plain data, for locks."""
        return asdict(self) | {"mu": list(self.mu)}


class Classes(NamedTuple):
    """Weight classes of a layer: light is w < ``light``, heavy is w >= ``heavy``."""

    light: float
    heavy: float


class Routed(NamedTuple):
    """One layer's routing of one row: experts in rank order ``ids`` [T, M], their logits ``z`` [T, M], ``w`` [T, K], ``lse`` [T]."""

    ids: NDArray[np.int64]
    z: Array
    w: Array
    lse: Array


class Executed(NamedTuple):
    """What is executed: ``ids`` and ``weights`` [T, K], which calls are ``substituted`` and which are ``missed`` (both [T, K])."""

    ids: NDArray[np.int64]
    weights: Array
    substituted: Flags
    missed: Flags


def route(z: NDArray[Any], layer: int, meta: Mapping[str, Any]) -> Routed:
    """Rank order and gate weights of router logits [T, E]; ranks are the core's.

    Raises:
        ValueError: a logit that is not a number.
    """
    groups = meta["groups"]
    depth = int(meta["experts"]) if groups is None else int(meta["experts"]) // int(groups["count"]) * int(groups["allowed"])
    bias = None if meta["bias"] is None else np.asarray(meta["bias"][layer], dtype=np.float64)
    ranked, _, lse, _ = _core.rank_logits(
        np.ascontiguousarray(z), depth, top_k=meta["top_k"], gating=meta["gating"], bias=bias, groups=groups
    )
    ids = ranked.astype(np.int64)
    logits = np.take_along_axis(z, ids, axis=1).astype(np.float64)
    top_k = int(meta["top_k"])
    scores = _scores(logits[:, :top_k], logits[:, :top_k].max(axis=1), meta)
    return Routed(ids, logits, scores / np.cumsum(scores, axis=1)[:, -1:], lse)


def _scores(z: Array, largest: Array, meta: Mapping[str, Any]) -> Array:
    """Gate probabilities up to a factor of the token: e^(z - largest), or the sigmoid."""
    made: Array = 1 / (1 + np.exp(-z)) if meta["gating"] == "sigmoid" else np.exp(z - largest[:, None])
    return made


def execute(routed: Routed, resident: Flags, arm: Arm, classes: Classes, document: int, layer: int, meta: Mapping[str, Any]) -> Executed:
    """What ``arm`` executes in one layer.

    Args:
        resident: [T, E] the schedule R- of this layer.
        classes: of this layer.
    """
    top_k = int(meta["top_k"])
    chosen = routed.ids[:, :top_k]
    missed = ~np.take_along_axis(resident, chosen, axis=1)
    substituted = choose(routed.w, missed, arm, classes, document, layer)
    ids, z = chosen.copy(), routed.z[:, :top_k].copy()
    for token in np.flatnonzero(substituted.any(axis=1)).tolist():
        ranks = np.flatnonzero(substituted[token])
        candidates = top_k + np.flatnonzero(resident[token, routed.ids[token, top_k:]])
        places = _substitutes(routed.ids[token], candidates, ranks, arm, document, layer, token)
        ids[token, ranks], z[token, ranks] = routed.ids[token, places], routed.z[token, places]
    if meta["normalise"] or meta["gating"] == "softmax_after_topk":
        scores = _scores(z, z.max(axis=1), meta)
        weights = scores / np.cumsum(scores, axis=1)[:, -1:]
    else:
        weights = _scores(z, routed.lse, meta)
    return Executed(ids, weights * float(meta["scale"]), substituted, missed)


def choose(w: Array, missed: Flags, arm: Arm, classes: Classes, document: int, layer: int) -> Flags:
    """[T, K] which calls ``arm`` substitutes."""
    chosen = np.zeros(w.shape, dtype=bool)
    if arm.order == "site" and arm.site is not None:
        token, at, rank = arm.site
        chosen[token, rank] = at == layer
        return chosen
    if arm.order not in ("heavy", "light", "random"):
        return chosen
    eligible = np.ones_like(missed) if arm.forced else missed.copy()
    eligible[:, 0] = False
    heavy, light = w >= classes.heavy, w < classes.light
    eligible &= heavy if arm.order == "heavy" else light if arm.order == "light" else heavy | light
    mu, spent = arm.mu[layer], 0.0
    for token in np.flatnonzero(eligible.any(axis=1)).tolist():
        ranks = np.flatnonzero(eligible[token]).tolist()
        row = w[token]
        if arm.order == "random":
            ranks.sort(key=lambda rank: _core.draw(arm.seed, [document, layer, token, rank]))
        else:  # equal weights: in rank order
            ranks.sort(key=lambda rank: -row[rank] if arm.order == "heavy" else row[rank])
        for rank in ranks:
            if row[rank] <= mu * (token + 1) - spent:
                chosen[token, rank] = True
                spent += float(row[rank])
    return chosen


def _substitutes(
    ids: NDArray[np.int64], candidates: NDArray[np.int64], ranks: NDArray[np.int64], arm: Arm, document: int, layer: int, token: int
) -> NDArray[np.int64]:
    """Places in ``ids`` of the substitutes of the calls ``ranks``, chosen in rank order, none twice.

    Raises:
        ValueError: fewer candidates than calls (C < 2K).
    """
    if len(candidates) < len(ranks):
        raise ValueError(f"token {token}: {len(candidates)} residents can stand in for {len(ranks)} calls; raise the residency")
    if arm.chooser == "router_rank":
        return candidates[: len(ranks)]
    left = candidates[np.argsort(ids[candidates])].tolist()
    return np.array([
        left.pop(_core.draw(arm.seed + 1, [document, layer, token, int(rank)]) % len(left)) for rank in ranks
    ], dtype=np.int64)  # fmt: skip


def schedule(initial: NDArray[np.int64], calls: Mapping[str, NDArray[Any]], tokens: int, experts: int) -> Flags:
    """[T, E] residents before the reference's fetches at each token of one layer.

    Args:
        initial: experts resident at the start.
        calls: the layer's rows of the reference's decision log; without admission only fetches change residents.
    """
    fetched = calls["verdict"] == _core.VERDICTS.index("fetch")
    token, expert, victim = (calls[name][fetched].astype(np.int64) for name in ("t", "expert", "victim"))
    bounds = np.searchsorted(token, np.arange(tokens + 1))
    state = np.zeros(experts, dtype=bool)
    state[initial] = True
    found = np.empty((tokens, experts), dtype=bool)
    for now in range(tokens):
        found[now] = state
        rows = slice(bounds[now], bounds[now + 1])
        gone = victim[rows]
        state[gone[gone >= 0]] = False
        state[expert[rows]] = True
    return found
