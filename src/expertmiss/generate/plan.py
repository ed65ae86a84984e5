"""The registered plan of the generation test: its files, what a lock of it holds, and whether a run may call itself registered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from expertmiss.errors import UserError
from expertmiss.experiments.lock import LOCK, Sample, Standing, is_locked, stands
from expertmiss.experiments.registered import read_decision, read_plan
from expertmiss.files import sha256_json

NAME = "generation"
PLAN, DECISION = f"prereg/{NAME}.yaml", f"prereg/decide_{NAME}.py"
NEEDED = ("split", "problems", "residency", "tasks", "reference", "arms", "order_arms", "decoding", "rules", "predictions")
NONE = "none"
"""Stands for the digest of a lock in what is made without one."""


def load_plan(root: Path) -> dict[str, Any]:
    """``prereg/generation.yaml`` as a plain dict.

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


def lock_in_force(root: Path, config: Mapping[str, Any]) -> str:
    """Digest of the lock that a run of ``config`` (composed) is made under; ``none`` where it is not registered or nothing is locked.

    Raises:
        UserError: the plan is locked, and it changed since or the configuration is another one than the plan's.
    """
    if not config["generate"]["registered"] or not is_locked(root, NAME, config["profile"]):
        return NONE
    check_configuration(load_plan(root), config)
    return stands(root, NAME, config["profile"]).digest


def check_configuration(plan: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Refuse a registered run that is not the plan's.

    Args:
        config: composed, or the slice of generate_answers.

    Raises:
        UserError: which option differs.
    """
    generate = config["generate"]
    wanted: dict[str, Any] = {"residency": plan["residency"], **plan["decoding"], "run_on": "emulator"}
    found = {name: generate[name] for name in wanted}
    wanted |= {"arms": sorted(plan["arms"]), "tasks": sorted(plan["tasks"])}
    found |= {"arms": sorted(config["arms"]), "tasks": sorted(config["tasks"])}
    if "problems" in generate:
        wanted, found = {**wanted, "problems": plan["problems"]}, {**found, "problems": generate["problems"]}
    for name, task in plan["tasks"].items():
        for option, value in task.items():
            wanted[f"tasks.{name}.{option}"] = value
            found[f"tasks.{name}.{option}"] = config["tasks"].get(name, {}).get(option)
    for name, value in wanted.items():
        if found[name] != value:
            raise UserError(
                f"generate.{name}: {found[name]} is not the registered {value} ({PLAN}); set it back, or set generate.registered=false"
            )


def digests_of(problems: pd.DataFrame) -> dict[str, str]:
    """SHA-256 of what each problem asks and how it is scored, by its name."""
    columns = ["domain", "source", "prompt", "answer", "tests", "entry_point"]
    return {str(row["problem"]): sha256_json([row[name] for name in columns]) for row in problems.to_dict("records")}


def rows_of(config: Mapping[str, Any]) -> list[Any]:
    """What is run, as plain data: residency, arms with their policies, tasks. ``config``: composed, or the slice of generate_answers."""
    arms = [{"arm": name, "policy": policy} for name, policy in sorted(config["arms"].items())]
    options = ("version", "tokens", "primary")
    tasks = [{"task": name, **{option: task[option] for option in options}} for name, task in sorted(config["tasks"].items())]
    return [{"residency": config["generate"]["residency"]}, *arms, *tasks]


def standing_of(root: Path, digest: str, cfg: Mapping[str, Any], problems: pd.DataFrame, model: str) -> Standing | None:
    """The plan's standing for a run under the lock ``digest``, everything compared with it; None for a run without one.

    Args:
        cfg: slice of generate_answers.
        model: digest of the model.

    Raises:
        UserError: another lock is in force, or a file, problem, arm or the model differs from what was locked.
    """
    if digest == NONE:
        return None
    check_configuration(load_plan(root), cfg)
    standing = stands(root, NAME, cfg["profile"], Sample(digests_of(problems), model, rows_of(cfg)))
    if standing.digest != digest:
        raise UserError(
            f"{LOCK}: plan '{NAME}' is locked as {standing.digest[:12]}, this run began under {digest[:12]}; start snakemake again"
        )
    return standing
