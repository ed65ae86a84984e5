"""What `expertmiss prereg lock generation` freezes: the registered problems, the model's weights, the arms.

Problems are generated for their hashes; no model runs on them here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from expertmiss.config import compose
from expertmiss.errors import UserError
from expertmiss.experiments.lock import LOCK, Sample, lock, stands
from expertmiss.generate.build import problem_table
from expertmiss.generate.plan import NAME, check_configuration, digests_of, load_plan, rows_of
from expertmiss.traces.capture import model_digest


def sample_of(root: Path, experiment: str, profile: str) -> Sample:
    """The registered sample, made anew.

    Raises:
        UserError: the configuration of ``experiment`` is not the plan's, or its tasks hold too few problems or templates.
    """
    plan, config = load_plan(root), compose(root, experiment, profile)
    check_configuration(plan, config)
    problems = problem_table(config["tasks"], config["corpus"], plan["split"], plan["problems"])
    for name, part in problems.groupby("domain"):
        for unit, count in (("problems", len(part)), ("templates", part["source"].nunique())):
            least = plan["problems"] if unit == "problems" else plan["rules"][f"min_{unit}"]
            if count < least:
                raise UserError(f"generation: nothing is locked: task {name} has {count} {unit}, {least} are needed")
    model = config["model"]
    return Sample(digests_of(problems), model_digest(root / model["path"], model["revision"]), rows_of(config))


def lock_generation(root: Path, experiment: str, profile: str) -> dict[str, Any]:
    """Lock the generation test with the problems, model and arms of ``experiment``."""
    return lock(root, NAME, profile, sample_of(root, experiment, profile))


def check_generation(root: Path, experiment: str, profile: str) -> str:
    """Compare problems, model and arms with the lock; a sentence that says they are unchanged.

    Raises:
        UserError: anything differs, see :func:`expertmiss.experiments.lock.stands`.
    """
    standing = stands(root, NAME, profile, sample_of(root, experiment, profile))
    entry = standing.entry
    return f"{standing.status}, unchanged: {len(entry['documents'])} problems, model, {len(entry['rows'])} rows ({LOCK}, {standing.digest[:12]})"
