"""Each seeded defect changes decisions where it can act, in the simulator and in the stepper alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from core_helpers import counts_of, meta, policy, run

from expertmiss import _core

EXPERTS, TOP_K, TOKENS, CAPACITY = 16, 4, 120, 6
# twin experts share their logits, so that ties are everywhere; little recency, so that misses are
TIED = np.repeat(np.random.default_rng(4).normal(size=(1, TOKENS, EXPERTS // 2)).astype(np.float32), 2, axis=2)
CHOSEN = policy("threshold", tau=0.3, initial="warm", admission={"name": "background", "beta": 0.3, "delay": 2})


def simulated(mutant: str | None) -> Any:
    return run(TIED, meta(EXPERTS, TOP_K), CHOSEN, CAPACITY, counts=counts_of(TIED, TOP_K), mutant=mutant, check=mutant is None)


def stepped(mutant: str | None) -> Any:
    stepper = _core.Stepper(meta(EXPERTS, TOP_K), CHOSEN, CAPACITY, counts_of(TIED, TOP_K), log=True, mutant=mutant)
    stepper.reset(0)
    stepper.steps(0, TIED[0])
    return stepper.take_log()


@pytest.mark.parametrize("mutant", _core.MUTANTS)
def test_a_mutant_decides_differently(mutant: str) -> None:
    sound, defective = simulated(None)["log"]["calls"], simulated(mutant)["log"]["calls"]
    assert any(not np.array_equal(sound[name], defective[name]) for name in ("expert", "verdict", "substitute", "victim"))


@pytest.mark.parametrize("mutant", [None, *_core.MUTANTS])
def test_both_tools_have_the_same_mutants(mutant: str | None) -> None:
    one, other = simulated(mutant)["log"], stepped(mutant)
    for name, column in one["calls"].items():
        assert np.array_equal(column, other["calls"][name]), name


def test_an_unknown_mutant_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown mutant 'none'"):
        simulated("none")
