"""Section "One step (token t, one layer)", paragraphs 0 to 8 in their order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from . import choosers, evictions, rules
from .evictions import NextUse
from .meters import Meters
from .scores import View
from .state import Key, Pool

VERDICTS = {"hit": 0, "fetch": 1, "substitute": 2, "drop": 3, "fallback_fetch": 4, "fallback_drop": 5}


@dataclass
class Call:
    """A row of the decision log: one expert of X and how it was answered (-1: none)."""

    document: int
    t: int
    layer: int
    rank: int
    expert: int
    verdict: int
    substitute: int = -1
    victim: Key | None = None
    weight: float = 0.0
    executed_weight: float = 0.0


@dataclass
class Landing:
    """A row of the log of landings."""

    document: int
    t: int
    key: Key
    victim: Key | None


@dataclass
class Outcome:
    """What one step did: log rows in rank order, and the executed experts with their weights (before the scale), in order of execution."""

    calls: list[Call]
    landings: list[Landing]
    executed: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)


def make_room(
    policy: dict[str, Any], pool: Pool, candidates: Iterable[Key], t: int, next_use: NextUse | None, meters: Meters
) -> Key | None:
    """Evict one of `candidates` if the pool is full."""
    if len(pool.entered) < pool.capacity:
        return None
    key = evictions.victim(policy["eviction"], pool, candidates, t, next_use)
    meters.eviction(key, unused=pool.evict(key))
    return key


def land(policy: dict[str, Any], pool: Pool, document: int, t: int, meters: Meters, arrived: list[Key] | None = None) -> list[Landing]:
    """Paragraph 1, once per pool and token; by the clock: what `arrived` lands in that order, whatever is due."""
    cap = policy.get("upload_cap")
    due = [key for key, when in pool.Q if when <= t][:cap] if arrived is None else arrived
    landed: list[Landing] = []
    for key in due:
        fresh = {landing.key for landing in landed}
        gone = make_room(policy, pool, [k for k in pool.entered if k not in fresh], t, None, meters)
        pool.insert(key, evictions.counts_in_cache(policy["eviction"]))
        pool.Q = [entry for entry in pool.Q if entry[0] != key]
        landed.append(Landing(document, t, key, gone))
        meters.landing(key)
    return landed


def fetch(policy: dict[str, Any], pool: Pool, key: Key, kept: set[Key], t: int, next_use: NextUse | None, meters: Meters) -> Key | None:
    """Insert `key` now; victims are the residents outside `kept`. Removes it from Q and sets A to 0."""
    gone = make_room(policy, pool, [k for k in pool.entered if k not in kept], t, next_use, meters)
    pool.insert(key, evictions.counts_in_cache(policy["eviction"]))
    pool.Q = [entry for entry in pool.Q if entry[0] != key]
    pool.A[key] = 0.0
    return gone


def decide(
    policy: dict[str, Any], pool: Pool, prior: rules.PriorState, view: View, document: int, t: int, next_use: NextUse | None, meters: Meters
) -> Outcome:
    """Paragraphs 2 to 8. Landing has been done."""
    rule, layer, K = policy["miss_rule"], view.layer, view.model.top_k

    # 2. Requested set, judged on R as it is now.
    resident = {expert for at, expert in pool.entered if at == layer}
    X = rules.requested_set(rule, view, resident, prior)
    assert set(view.S) & resident <= set(X) and len(set(X)) == K

    # 3. Verdicts, on R as it is when this paragraph begins.
    calls = []
    for expert in X:
        answer = "hit" if expert in resident else rules.answer_to_miss(rule, view, expert)
        calls.append(Call(document, t, layer, view.rank[expert], expert, VERDICTS[answer], weight=view.weight(expert)))
        meters.verdict(pool, (layer, expert), answer)

    # 4. Fetch in rank order; S and X are shielded.
    kept = {(layer, expert) for expert in [*view.S, *X]}
    for call in calls:
        if call.verdict == VERDICTS["fetch"]:
            call.victim = fetch(policy, pool, (layer, call.expert), kept, t, next_use, meters)

    # 5. Substitute in rank order.
    taken: set[Key] = set()
    fallback = "fetch" if rule["name"] == "score_margin" else policy.get("fallback", "fetch")
    for call in calls:
        if call.verdict != VERDICTS["substitute"]:
            continue
        candidates = [
            expert
            for expert in view.order
            if (layer, expert) in pool.entered and (layer, expert) not in kept | taken and rules.may_substitute(rule, view, expert)
        ]
        if candidates:
            call.substitute = choosers.choose(policy["chooser"], view, candidates, document, t, call.rank)
            taken.add((layer, call.substitute))
            continue
        assert (
            policy["scope"] == "global"
            or view.model.groups is not None
            or len(pool.entered) < pool.capacity
            or rule["name"] == "score_margin"
        ), "a full pool of a layer always holds a substitute"
        call.verdict = VERDICTS["fallback_" + fallback]
        if fallback == "fetch":
            call.victim = fetch(policy, pool, (layer, call.expert), kept | taken, t, next_use, meters)

    # 6. Execute.
    outcome = Outcome(calls, [])
    running = [call for call in calls if call.verdict not in (VERDICTS["drop"], VERDICTS["fallback_drop"])]
    outcome.executed = [call.substitute if call.verdict == VERDICTS["substitute"] else call.expert for call in running]
    outcome.weights = executed_weights(policy["weights"], view, running, outcome.executed)
    for call, weight in zip(running, outcome.weights, strict=True):
        call.executed_weight = weight * view.model.scale
    assert len(set(outcome.executed)) == len(outcome.executed)
    assert all((layer, expert) in pool.entered for expert in outcome.executed) and len(pool.entered) <= pool.capacity

    # 7. Update.
    for expert in outcome.executed if policy["update"] == "executed" else X:
        evictions.count_request(policy["eviction"], pool, (layer, expert), t)

    # 8. Admit.
    admission = policy["admission"]
    for call in calls:
        key = (layer, call.expert)
        if call.verdict != VERDICTS["substitute"] or admission["name"] == "fetched_only" or pool.in_queue(key):
            continue
        if admission["name"] == "every_miss":
            pool.Q.append((key, t + 1))
        else:
            pool.A[key] = pool.A.get(key, 0.0) + call.weight
            if pool.A[key] >= admission["beta"]:
                pool.Q.append((key, t + admission["delay"]))
                pool.A[key] = 0.0

    meters.step(pool, view, calls, outcome.executed, outcome.weights, t)
    return outcome


def executed_weights(convention: dict[str, Any], view: View, running: list[Call], executed: list[int]) -> list[float]:
    """Paragraph 6, in order of execution (the rank order of the calls); the model's scale factor is not part of it."""
    if convention["name"] == "inherit":
        return [call.weight if view.model.normalises else view.p[call.expert] for call in running]
    a = convention["a"] if convention["name"] == "scaled" else 1.0
    factor = [a if call.verdict == VERDICTS["substitute"] else 1.0 for call in running]
    if view.model.normalises:
        return view.normalised_over(executed, factor)
    return [view.p[expert] * f for expert, f in zip(executed, factor, strict=True)]
