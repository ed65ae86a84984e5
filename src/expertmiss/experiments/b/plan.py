"""The registered plan of Experiment B: its file, its arms, and the decision module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from expertmiss.emulate.rows import Row
from expertmiss.experiments.b.arms import Arm
from expertmiss.experiments.registered import read_decision, read_plan
from expertmiss.simulate.capacity import resident_experts

NAME = "experiment_b"
PLAN, WORDS, DECISION = f"prereg/{NAME}.yaml", f"prereg/{NAME}.md", f"prereg/decide_{NAME}.py"
NEEDED = (
    "reference", "residency", "first_targets_left_out", "class_shares", "supply_quantile", "primary_share", "levels", "primary", "delta_share", "mass_tolerance",
    "arms_tolerance", "documents_share", "confidence", "equivalence_confidence", "pilot_split", "split", "min_sources",
    "documents_per_source", "power", "simulations", "sizes", "seeds",
)  # fmt: skip
KINDS = ("natural", "forced", "random chooser")


def load_plan(root: Path) -> dict[str, Any]:
    """``prereg/experiment_b.yaml`` as a plain dict.

    Raises:
        UserError: missing, not YAML, or without one of its keys.
    """
    return read_plan(root, PLAN, NEEDED)


def load_decision(root: Path) -> ModuleType:
    """The decision module.

    Raises:
        UserError: missing, or it does not run.
    """
    return read_decision(root, DECISION)


def reference_row(plan: Mapping[str, Any], experts: int, top_k: int) -> Row:
    """The lossless reference at the plan's residency."""
    return Row(plan["reference"]["name"], dict(plan["reference"]), resident_experts(plan["residency"], experts, top_k))


def plan_arms(plan: Mapping[str, Any], mu: Mapping[str, Sequence[float]]) -> list[Arm]:
    """Every arm: heavy, light and random at each level, heavy and light with forced misses and with the random chooser at the primary one.

    ``mu``: budgets [L] by name of the level.
    """
    seed, primary = int(plan["seeds"]["order"]), plan["primary"]
    budget = {level: tuple(mu[level]) for level in plan["levels"]}
    arms = [
        Arm(f"{order}/{level}", order, budget[level], level, seed=seed)
        for level in plan["levels"]
        for order in ("heavy", "light", "random")
    ]
    for order in ("heavy", "light"):
        arms.append(Arm(f"{order}/{primary}/forced", order, budget[primary], primary, forced=True, seed=seed))
        arms.append(Arm(f"{order}/{primary}/random_chooser", order, budget[primary], primary, chooser="random", seed=seed))
    return arms


def kind(arm: Arm) -> str:
    """Which comparison an arm belongs to, of ``KINDS``."""
    return "forced" if arm.forced else "random chooser" if arm.chooser == "random" else "natural"
