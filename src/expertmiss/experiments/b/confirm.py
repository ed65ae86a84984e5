"""Stage run_experiment_b: the locked arms over the locked documents. Refuses without a lock, and whatever differs from it.

Inputs:  tokens.parquet with the confirmatory split, calibration trace, prereg/ (lock, plan, decision), the model's folder.
Outputs: cells.parquet (document x arm), run.json with the lock's hash.
Steps:   check files, model, documents and arms against the lock; forward passes, resumable; write.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from expertmiss.errors import UserError
from expertmiss.experiments.b.arms import Classes
from expertmiss.experiments.b.emulate import cells_frame, open_setting, run_arms
from expertmiss.experiments.b.plan import NAME, load_plan, plan_arms
from expertmiss.experiments.b.register import locked_documents, present_sample
from expertmiss.experiments.lock import CHANGED, Standing, stands
from expertmiss.experiments.output import Clock
from expertmiss.files import atomic_path, clear_parts
from expertmiss.paths import project_root
from expertmiss.provenance import write_run
from expertmiss.stages import Context
from expertmiss.traces.capture import local_files, model_digest

STAGE = "run_experiment_b"


def run(cfg: dict[str, Any], *, out: Path, context: Context, tokens: Path, calibration: Path, lock: Path) -> None:
    """Write ``cells.parquet`` and ``run.json`` into ``out``.

    ``cfg``: ``model``, ``host.name``, ``corpus.name``, ``emulate.torch_threads``, ``profile``. ``lock`` is ``prereg/LOCK.json`` (named so that a
    workflow sees it change).

    Raises:
        UserError: nothing is locked; a plan's file, the model, a document or an arm differs from what was locked.
    """
    clock = Clock()
    root, model_cfg = project_root(), cfg["model"]
    plan = load_plan(root)
    standing = stands(root, NAME, cfg["profile"])
    sample = present_sample(tokens, standing.entry, plan, model_digest(Path(model_cfg["path"]), model_cfg["revision"]))
    standing = stands(root, NAME, cfg["profile"], sample)
    numbers = standing.entry["numbers"]
    setting = open_setting(cfg, plan, locked_documents(tokens, standing.entry, plan), tokens=tokens, calibration=calibration)
    capacity = setting.runner.emulator.rows[0].capacity
    if capacity != numbers["capacity"]:
        raise UserError(
            f"experiment_b: {capacity} experts would be resident, {numbers['capacity']} are locked; restore the plan and the model"
        )
    arms = plan_arms(plan, numbers["mu"])
    begun = time.monotonic()
    parts = run_arms(
        setting,
        arms,
        [Classes(*bounds) for bounds in numbers["classes"]],
        out=out,
        context=context,
        what="experiment B",
        extra=standing.digest,
    )
    seconds = time.monotonic() - begun
    cells = cells_frame(setting, parts, arms, plan["first_targets_left_out"]).assign(lock=standing.digest)
    with atomic_path(out / "cells.parquet") as path:
        cells.to_parquet(path, index=False)
    write_run(
        out, stage=STAGE, experiment=context.experiment, name=f"experiment B with {model_cfg['name']} on {cfg['corpus']['name']}",
        config={**cfg, "lock": standing.digest}, source_hash=context.source_hash,
        inputs=[tokens, calibration, lock, *local_files(Path(model_cfg["path"]))], outputs=[out / "cells.parquet"],
        metrics={"documents": len(setting.documents), "arms": len(arms), "row_tokens_per_second": setting.text.size * (1 + len(arms)) / seconds},
        timings={"arms_s": seconds, "total_s": time.monotonic() - clock.begun}, started=clock.started,
        labels=labels_of(cfg["model"]["substrate"], cfg["host"]["name"], standing, cells),
    )  # fmt: skip
    clear_parts(out)


def labels_of(substrate: str, host: str, standing: Standing, cells: Any) -> dict[str, Any]:
    """Labels of what is made under the lock; a plan that was changed after its result is not confirmatory."""
    first = cells.drop_duplicates("document")
    return {
        "substrate": substrate, "routing": "own", "time": "none", "host": host,
        "status": "exploratory" if standing.status == CHANGED else "confirmatory",
        "n": {"documents": len(first), "sources": int(first["source"].nunique()), "tokens": int(first["scored"].sum())},
        "notes": ["residency schedule of fetch_all", f"lock {standing.digest[:12]}", *([CHANGED] if standing.status == CHANGED else [])],
    }  # fmt: skip
