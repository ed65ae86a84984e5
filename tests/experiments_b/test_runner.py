"""The hook in a running model: the reference is the emulator's, and what an arm loses is what its decisions lose when they are forced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from expertmiss.emulate.decide import Decisions
from expertmiss.emulate.emulator import Emulator
from expertmiss.emulate.rows import Row
from expertmiss.errors import UserError
from expertmiss.experiments.b.arms import Arm, Classes
from expertmiss.experiments.b.runner import ArmRunner
from tests.models.tiny import tiny_model

FETCH_ALL = {"name": "fetch_all", "miss_rule": {"name": "fetch_all"}, "eviction": {"name": "lru"}, "admission": {"name": "fetched_only"}}
CLASSES = [Classes(0.15, 0.25), Classes(0.14, 0.2), Classes(0.2, 0.22)]
BUDGET = (0.05, 0.08, 0.03)
ARMS = [
    Arm("none", "none"), Arm("heavy", "heavy", BUDGET), Arm("light", "light", BUDGET), Arm("random", "random", BUDGET),
    Arm("nothing", "heavy", (0.0,) * 3),
    Arm("forced", "light", (0.1, 0.2, 0.1), forced=True), Arm("chooser", "heavy", BUDGET, chooser="random"), Arm("site", "site", site=(30, 1, 0)),
]  # fmt: skip
TOKENS = np.random.default_rng(0).integers(1, 60, 80)


@pytest.fixture(scope="module", params=["qwen3_moe", "granitemoe", "olmoe"])
def ran(request: pytest.FixtureRequest) -> Any:
    experts = "num_local_experts" if request.param == "granitemoe" else "num_experts"
    model = tiny_model(request.param, torch.float64, **{experts: 32})
    row = Row("fetch_all", FETCH_ALL, 9)
    layers = model.config.num_hidden_layers
    counts = np.tile(np.arange(32), (layers, 1)).astype(np.int64)
    runner = ArmRunner(model, row, counts)
    return model, row, counts, runner.run(TOKENS, 3, ARMS, CLASSES, keep=True)


def test_the_reference_is_the_emulator_s(ran: Any) -> None:
    model, row, counts, outcome = ran
    emulated = Emulator(model, [row], counts).whole(TOKENS, 3)
    assert outcome.nll[0] == pytest.approx(emulated.nll[0], abs=1e-9)
    assert outcome.meters["missed"][0].tolist() == emulated.meters["fetches"][0].tolist()


def test_an_arm_that_may_not_substitute_loses_nothing(ran: Any) -> None:
    outcome = ran[3]
    for arm in (0, 4):
        assert outcome.nll[1 + arm] == pytest.approx(outcome.nll[0], abs=1e-9)
    assert (outcome.meters["mass"][[1, 5]] == 0).all()


def test_an_arm_s_loss_is_that_of_its_decisions(ran: Any) -> None:
    """What every arm executed, forced onto the emulator, gives the arm's losses: the hook changes nothing else."""
    model, row, counts, outcome = ran
    for index, arm in enumerate(ARMS):
        made = outcome.executed[index]
        forced = Decisions([[layer.ids[None].astype(np.uint16)] for layer in made], [[layer.weights[None]] for layer in made])
        again = Emulator(model, [row], counts).whole(TOKENS, 3, forced=forced)
        assert outcome.nll[1 + index] == pytest.approx(again.nll[0], abs=1e-9), arm.name
        if arm.order in ("heavy", "light", "random") and arm.target > 0:
            assert np.abs(outcome.nll[1 + index] - outcome.nll[0]).max() > 1e-4, arm.name


def test_meters_are_what_was_executed(ran: Any) -> None:
    outcome = ran[3]
    for index, arm in enumerate(ARMS):
        substituted = [layer.substituted.sum() for layer in outcome.executed[index]]
        assert outcome.meters["substituted"][1 + index].tolist() == substituted
        if arm.order != "site":
            assert (outcome.meters["mass"][1 + index] <= np.array(arm.mu or 0.0) * len(TOKENS) + 1e-9).all()
    site = outcome.executed[-1]
    assert [layer.substituted.sum() for layer in site] == [int(layer == 1) for layer in range(len(site))]
    before = outcome.nll[-1][:30] - outcome.nll[0][:30]
    assert np.abs(before).max() < 1e-9 and np.abs(outcome.nll[-1] - outcome.nll[0]).max() > 1e-4  # only what follows the site can change


def test_misses_are_the_reference_s_of_rank_1_and_more(ran: Any) -> None:
    outcome = ran[3]
    found = outcome.misses
    assert (found["rank"] >= 1).all() and len(found["rank"]) < outcome.meters["missed"][0].sum()
    truly = outcome.executed[0]  # executes what the reference does, so it misses what the reference misses
    assert len(found["rank"]) == sum(layer.missed[:, 1:].sum() for layer in truly)


def test_a_reference_that_substitutes_is_refused() -> None:
    policy = {**FETCH_ALL, "miss_rule": {"name": "first_choice"}}
    with pytest.raises(UserError, match="reference fetches every miss"):
        ArmRunner(tiny_model("qwen3_moe"), Row("x", policy, 9), np.ones((3, 16), np.int64))
