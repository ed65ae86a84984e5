"""The arms against a slow oracle, and what must hold for any of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expertmiss import _core
from expertmiss.errors import UserError
from expertmiss.experiments.b.arms import Arm, Classes, execute, route, schedule
from expertmiss.experiments.b.levels import find_levels, weighted_quantile
from tests.experiments_b.oracle import flags, lru_schedule, walk

META: dict[str, Any] = {
    "layers": 1, "experts": 24, "top_k": 4, "gating": "softmax", "normalise": True, "scale": 1.0, "bias": None, "groups": None,
}  # fmt: skip
FETCH_ALL = {"name": "fetch_all", "miss_rule": {"name": "fetch_all"}, "eviction": {"name": "lru"}, "admission": {"name": "fetched_only"}}
CAPACITY, DOCUMENT, LAYER = 9, 11, 0
CLASSES = Classes(0.12, 0.2)


def budget(mu: float) -> tuple[float, ...]:
    """``mu`` in the layer of these tests and in the next."""
    return (mu,) * (LAYER + 2)


def logits(seed: int, tokens: int = 60) -> Any:
    """[T, E] float32, coarse enough that ties of logits happen."""
    return (np.random.default_rng(seed).normal(size=(tokens, META["experts"])) * 8).round().astype(np.float32) / 8


def reference(z: Any) -> tuple[Any, list[int]]:
    """The core's decision log of one document and the residents at its start, in order of insertion."""
    counts = np.arange(META["experts"])[None, ::-1].astype(np.int64).copy()
    stepper = _core.Stepper(META, FETCH_ALL, CAPACITY, counts, log=True)
    stepper.reset(DOCUMENT)
    stepper.steps(0, z)
    return stepper.take_log()["calls"], stepper.initial_order[:, 1].astype(int).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_the_schedule_is_that_of_lru(seed: int) -> None:
    z = logits(seed)
    calls, start = reference(z)
    found = schedule(np.array(start), calls, len(z), META["experts"])
    assert (found == flags(lru_schedule(z, META["top_k"], start), META["experts"])).all()
    assert (found.sum(axis=1) == CAPACITY).all() and (found[1:] != found[:-1]).any()


CASES = [
    *((order, forced, chooser) for order in ("heavy", "light", "random") for forced in (False, True) for chooser in ("router_rank", "random")),
    ("none", False, "router_rank"),
]  # fmt: skip


@pytest.mark.parametrize(("order", "forced", "chooser"), CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_arm_does_what_the_oracle_does(order: str, forced: bool, chooser: str, seed: int) -> None:
    z, scheduled = logits(seed), logits(seed + 100)  # the arm's own S differs from the reference's
    _, start = reference(scheduled)
    residents = lru_schedule(scheduled, META["top_k"], start)
    arm = Arm("x", order, budget(0.07), forced=forced, chooser=chooser, seed=5)
    routed = route(z, LAYER, META)
    found = execute(routed, flags(residents, META["experts"]), arm, CLASSES, DOCUMENT, LAYER, META)
    ids, weights, ranks, mass = walk(
        z, META["top_k"], residents, order, 0.07, CLASSES.light, CLASSES.heavy, forced=forced,
        key=lambda token, rank: _core.draw(5, [DOCUMENT, LAYER, token, rank]),
        pick=None if chooser == "router_rank" else lambda token, rank, n: _core.draw(6, [DOCUMENT, LAYER, token, rank]) % n,
    )  # fmt: skip
    assert found.ids.tolist() == ids
    assert [np.flatnonzero(row).tolist() for row in found.substituted] == ranks
    assert found.weights == pytest.approx(np.array(weights), abs=1e-12)
    assert (np.where(found.substituted, routed.w, 0).sum(axis=1)) == pytest.approx(np.array(mass), abs=1e-12)
    assert found.substituted.any() == (order != "none")


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000), mu=st.floats(0.0, 0.5), order=st.sampled_from(["heavy", "light", "random"]), forced=st.booleans(),
    chooser=st.sampled_from(["router_rank", "random"]),
)  # fmt: skip
def test_what_holds_for_any_arm(seed: int, mu: float, order: str, forced: bool, chooser: str) -> None:
    z = logits(seed, 30)
    calls, start = reference(z)
    resident = schedule(np.array(start), calls, len(z), META["experts"])
    routed = route(z, LAYER, META)
    found = execute(routed, resident, Arm("x", order, budget(mu), forced=forced, chooser=chooser), CLASSES, DOCUMENT, LAYER, META)
    mass = np.where(found.substituted, routed.w, 0.0).sum(axis=1).cumsum()
    assert (mass <= mu * np.arange(1, len(z) + 1) + 1e-12).all()  # at every token, so at the end too
    assert not found.substituted[:, 0].any()
    truly = routed.ids[:, : META["top_k"]]
    assert (found.ids[~found.substituted] == truly[~found.substituted]).all()
    for token, rank in zip(*np.nonzero(found.substituted), strict=True):
        assert resident[token, found.ids[token, rank]] and found.ids[token, rank] not in truly[token]
        assert forced or not resident[token, truly[token, rank]]
        weight = routed.w[token, rank]
        assert {"heavy": weight >= CLASSES.heavy, "light": weight < CLASSES.light}.get(order, not CLASSES.light <= weight < CLASSES.heavy)
    assert all(len(set(row)) == META["top_k"] for row in found.ids.tolist())
    assert found.weights.sum(axis=1) == pytest.approx(1)


def test_arms_differ_only_in_what_they_choose() -> None:
    """At the same input the tokens without a substitution in two arms are executed alike, to the last bit."""
    z = logits(3)
    calls, start = reference(z)
    resident, routed = schedule(np.array(start), calls, len(z), META["experts"]), route(z, LAYER, META)
    made = [
        execute(routed, resident, Arm("x", order, budget(0.05)), CLASSES, DOCUMENT, LAYER, META) for order in ("none", "heavy", "light")
    ]
    for one in made[1:]:
        same = ~one.substituted.any(axis=1)
        assert same.any() and not same.all()
        assert (one.ids[same] == made[0].ids[same]).all() and (one.weights[same] == made[0].weights[same]).all()
        assert (one.missed == made[0].missed).all()


def test_a_site_is_the_only_substitution() -> None:
    z = logits(4)
    calls, start = reference(z)
    resident, routed = schedule(np.array(start), calls, len(z), META["experts"]), route(z, LAYER, META)
    found = execute(routed, resident, Arm("x", "site", site=(7, LAYER, 0)), CLASSES, DOCUMENT, LAYER, META)
    elsewhere = execute(routed, resident, Arm("x", "site", site=(7, LAYER + 1, 0)), CLASSES, DOCUMENT, LAYER, META)
    assert np.argwhere(found.substituted).tolist() == [[7, 0]] and not elsewhere.substituted.any()
    best = next(expert for expert in routed.ids[7, META["top_k"] :] if resident[7, expert])
    assert found.ids[7, 0] == best


def test_weights_are_the_core_s() -> None:
    """Gate weights and executed weights of an arm that substitutes nothing are the core's to 1 ulp or so, for every gating."""
    for gating, normalise in (("softmax", True), ("softmax", False), ("sigmoid", True), ("softmax_after_topk", True)):
        meta = {**META, "gating": gating, "normalise": normalise, "scale": 2.5}
        z = logits(6)
        stepper = _core.Stepper(meta, FETCH_ALL, CAPACITY, np.ones((1, META["experts"]), np.int64), log=True)
        stepper.reset(DOCUMENT)
        ids, weights, _ = stepper.steps(0, z)
        found = execute(route(z, 0, meta), np.ones(z.shape, bool), Arm("x", "none"), CLASSES, DOCUMENT, 0, meta)
        log = stepper.take_log()["calls"]["weight"].reshape(ids.shape)
        assert (found.ids == ids).all() and found.weights == pytest.approx(weights, rel=1e-14)
        assert route(z, 0, meta).w == pytest.approx(log, rel=1e-14)


def test_levels_by_hand() -> None:
    weight = np.array([0.1, 0.1, 0.1, 0.3, 0.3, 0.1, 0.2, 0.6])  # layer 0: sum 1.8; a third is 0.6, two thirds 1.2
    layer, document = np.zeros(8, np.int64), np.array([0, 0, 0, 0, 1, 1, 1, 0])
    misses = {"weight": np.append(weight, weight / 10), "layer": np.append(layer, layer + 2), "document": np.tile(document, 2)}
    plan = {"class_shares": [1 / 3, 2 / 3], "supply_quantile": 0.0, "primary_share": 0.5, "levels": {"mu_1": 0.5, "mu_2": 1.0}}
    found = find_levels(misses, (2, 3), 10, plan)
    assert found.classes == [Classes(0.2, 0.3), Classes(0.0, 1.0), Classes(pytest.approx(0.02), pytest.approx(0.03))]
    assert found.supply["light"] == pytest.approx([0.01, 0, 0.001]) and found.supply["heavy"] == pytest.approx([0.03, 0, 0.003])
    assert found.mu == {"mu_1": pytest.approx([0.0025, 0, 0.00025]), "mu_2": pytest.approx([0.005, 0, 0.0005])}
    assert weighted_quantile(np.array([3.0, 1.0]), 0.25) == 1.0 and weighted_quantile(np.array([3.0, 1.0]), 0.26) == 3.0


def test_no_supply_is_refused() -> None:
    plan = {"class_shares": [1 / 3, 2 / 3], "supply_quantile": 0.1, "primary_share": 0.5, "levels": {"mu_2": 1.0}}
    misses = {"weight": np.array([0.3, 0.3, 0.3]), "layer": np.array([0, 0, 0]), "document": np.array([0, 0, 0])}
    with pytest.raises(UserError, match="no layer has a supply"):
        find_levels(misses, (1, 2), 10, plan)
    with pytest.raises(UserError, match="no miss"):
        find_levels({name: values[:0] for name, values in misses.items()}, (1, 2), 10, plan)


def test_a_layer_without_budget_is_left_alone() -> None:
    z = logits(3)
    calls, start = reference(z)
    resident, routed = schedule(np.array(start), calls, len(z), META["experts"]), route(z, LAYER, META)
    arm = Arm("x", "heavy", tuple(0.3 * (layer != LAYER) for layer in range(LAYER + 2)))
    assert not execute(routed, resident, arm, CLASSES, DOCUMENT, LAYER, META).substituted.any()
    assert execute(routed, resident, arm, CLASSES, DOCUMENT, LAYER + 1, META).substituted.any()
