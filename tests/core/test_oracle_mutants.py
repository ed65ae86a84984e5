"""The comparison can fail: each seeded defect of the core is caught, on inputs where it acts, in both of the core's loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from oracle.cases import Case, logits
from oracle.compare import (
    compare_simulate,
    compare_stepper,
    report_counts,  # noqa: F401 (an autouse fixture)
)
from oracle.defaults import policy
from oracle.scores import Model

from expertmiss import _core

T, L, E, K, C = 60, 2, 12, 3, 4
BACKGROUND = {"name": "background", "beta": 0.5, "delay": 1}
# defect -> (flavour of the logits, policies in which it acts)
ACTS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "late_landing": ("sticky", [policy("substitute_all", admission={"name": "every_miss"}), policy("first_choice", admission=BACKGROUND)]),
    "tie_higher_id": ("equal", [policy("first_choice"), policy("substitute_all", admission={"name": "every_miss"})]),
    "no_shield": ("normal", [policy("fetch_all"), policy("fetch_all", eviction={"name": "fifo"})]),
    "update_executed": ("normal", [policy("first_choice"), policy("substitute_all", admission={"name": "every_miss"})]),
    "stale_mass": (
        "normal",
        [policy("first_choice", admission=BACKGROUND), policy("threshold", miss_rule={"tau": 0.4}, admission=BACKGROUND)],
    ),
}
Compare = Callable[..., None]


def _case(flavour: str, chosen: dict[str, Any], seed: int = 0) -> Case:
    counts = np.random.default_rng(seed).integers(0, 9, size=(L, E)).tolist()
    return Case(Model(L, E, K), chosen, C, logits(flavour, seed, T, L, E), [0] * T, counts, seed)


def test_every_defect_of_the_core_has_a_case() -> None:
    assert set(ACTS) == set(_core.MUTANTS)


@pytest.mark.parametrize("compare", [compare_simulate, compare_stepper])
@pytest.mark.parametrize("mutant", ACTS)
def test_defect_is_caught(mutant: str, compare: Compare) -> None:
    flavour, policies = ACTS[mutant]
    for chosen in policies:
        compare(_case(flavour, chosen))
        with pytest.raises((AssertionError, RuntimeError)):
            compare(_case(flavour, chosen), mutant=mutant)
