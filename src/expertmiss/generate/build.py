"""Stage build_tasks: the problems of the generation test.

Inputs:  the plan (prereg/generation.yaml); for hub tasks a data set, for humaneval its package.
Outputs: ``problems.parquet`` (a row a problem: task in ``domain``, template in ``source``, prompt, answer, tests).
Steps:   generate or load the problems of each task; keep at most so many, templates taking turns. Once the plan is locked a registered run gets the
         registered split; every other run gets ``generate.split``.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from expertmiss.corpora.builtin import scored_problems
from expertmiss.errors import UserError
from expertmiss.files import atomic_path
from expertmiss.generate import gsm8k, humaneval
from expertmiss.generate.plan import NONE, load_plan
from expertmiss.generate.problems import in_turns
from expertmiss.generate.tasks import COLUMNS
from expertmiss.paths import project_root
from expertmiss.provenance import write_run
from expertmiss.stages import Context

STAGE = "build_tasks"


def run(cfg: dict[str, Any], *, out: Path, context: Context, lock: str) -> None:
    """Write ``problems.parquet`` and ``run.json`` into ``out``.

    ``cfg``: ``tasks``, ``generate`` (``split``, ``problems``), ``corpus`` (``seed`` and the ranges of difficulty). ``lock`` is the digest of the locked
    plan, or ``none``.

    Raises:
        UserError: a task's problems cannot be had.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    split = load_plan(project_root())["split"] if lock != NONE else cfg["generate"]["split"]
    table = problem_table(cfg["tasks"], cfg["corpus"], split, cfg["generate"]["problems"])
    with atomic_path(out / "problems.parquet") as path:
        table.to_parquet(path, index=False)
    sizes = table.groupby("domain", sort=False).size()
    write_run(
        out, stage=STAGE, experiment=context.experiment, name=f"problems of {', '.join(cfg['tasks'])}, split {split}", config={**cfg, "lock": lock},
        source_hash=context.source_hash, inputs=[], outputs=[out / "problems.parquet"],
        metrics={f"problems/{name}": int(count) for name, count in sizes.items()}, timings={"total_s": time.monotonic() - clock}, started=started,
        labels={
            "substrate": "none", "routing": "none", "time": "none", "host": "none", "status": "exploratory", "n": {"problems": len(table)},
            "notes": [described(task) for task in cfg["tasks"].values()],
        },
    )  # fmt: skip


def problem_table(tasks: Mapping[str, Mapping[str, Any]], corpus: Mapping[str, Any], split: str, most: int) -> pd.DataFrame:
    """At most ``most`` problems of each task, in the form of ``problems.parquet`` with their ``number``.

    Raises:
        UserError: a task's problems cannot be had, or it has none.
    """
    if not tasks:
        raise UserError("generate.tasks: is empty, so there is no generation test; name a file of config/task")
    found = []
    for task in tasks.values():
        rows = _rows(task, corpus, split)
        table = pd.DataFrame(rows, columns=[*COLUMNS, "number"]).assign(number=range(len(rows)))
        if table.empty:
            raise UserError(f"task {task['name']}: has no problem; leave it out of generate.tasks")
        found.append(in_turns(table, most))
    return pd.concat(found, ignore_index=True)


def _rows(task: Mapping[str, Any], corpus: Mapping[str, Any], split: str) -> list[dict[str, Any]]:
    if task["kind"] == "gsm8k":
        return list(gsm8k.rows(task))
    if task["kind"] == "humaneval":
        items = [solved.item for solved in humaneval.problems()]
        fields = [dataclasses.asdict(dataclasses.replace(item, task=item.task.name)) for item in items]  # type: ignore[arg-type]
        return [{**row, "domain": row["task"], "split": "test", "tests": json.dumps(row["tests"])} for row in fields]
    chosen = {**corpus, "domains": [task["name"]], "problems_per_template": task["problems_per_template"]}
    return list(scored_problems(chosen, split))


def described(task: Mapping[str, Any]) -> str:
    """What a task may be called."""
    known = {"word_problems": "synthetic word problems in the form of GSM8K", "functions": "synthetic functions in the form of HumanEval"}
    return f"{known.get(task['name'], task['name'])}, v{task['version']}"
