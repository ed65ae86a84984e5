"""Stage simulate_policies: every policy at every capacity over a recorded trace, in one table.

Inputs: the trace of the exploratory split, the calibration trace (request counts of warm starts). Output: ``cells.parquet``, one row per
policy x capacity x seed x document, meters summed over layers. Open loop: the recorded routers do not see what a policy changed.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from expertmiss import policies as core
from expertmiss.errors import UserError
from expertmiss.files import atomic_path
from expertmiss.progress import Progress
from expertmiss.provenance import write_run
from expertmiss.simulate.capacity import resident_experts
from expertmiss.stages import Context
from expertmiss.traces.format import Trace


def run(cfg: dict[str, Any], *, out: Path, context: Context, trace: Path, calibration: Path) -> None:
    """Simulate the grid of ``cfg["simulate"]`` and ``cfg["policies"]`` into ``out/cells.parquet``.

    Raises:
        UserError: traces of different models, C < K, a policy that the definitions refuse, a trace too shallow for a policy.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    grid = cfg["simulate"]
    core.check_core_fresh()
    recorded, counted = Trace.open(trace, check_values=True), Trace.open(calibration, check_values=True)
    for name in ("model_revision", "layers", "experts", "top_k"):
        if getattr(recorded.meta, name) != getattr(counted.meta, name):
            raise UserError(f"{calibration}: metadata '{name}' differs from {trace}; capture both with the same model")
    counts = core.request_counts(counted)
    geometry = recorded.meta.geometry()
    cells = [
        (policy, share, resident_experts(share, recorded.meta.experts, recorded.meta.top_k), seed)
        for policy in cfg["policies"].values()
        for share in grid["residency"]
        for seed in (grid["seeds"] if core.draws(policy) else grid["seeds"][:1])
    ]
    for policy, _, capacity, _ in cells:
        core.validate(policy, geometry, capacity)
    frames, calls = [], 0
    with Progress(len(cells), "simulate", "cell", context.journal) as bar:
        for policy, share, capacity, seed in cells:
            meters = core.simulate(recorded, policy, capacity, counts=counts, seed=seed, threads=grid["threads"])
            frame = _cell(recorded, meters, policy, share, capacity, seed)
            past = frame["past_depth"].sum() / frame["token_layers"].sum()
            if past > grid["max_past_depth"]:
                raise UserError(
                    f"{trace}: policy {policy['name']} at C = {capacity} looked past depth M = {recorded.meta.depth} in {past:.2%} of steps; "
                    "raise capture.depth"
                )
            calls += int(frame["calls"].sum())
            frames.append(frame)
            bar.update(1)
    table = pd.concat(frames, ignore_index=True)
    with atomic_path(out / "cells.parquet") as path:
        table.to_parquet(path, index=False)
    seconds = time.monotonic() - clock
    write_run(
        out, stage="simulate_policies", experiment=context.experiment, name=f"simulate policies over {recorded.meta.model} on {recorded.meta.corpus}",
        config=cfg, source_hash=context.source_hash, inputs=[trace, calibration], outputs=[out / "cells.parquet"],
        metrics={"cells": len(cells), "routed_calls": calls, "calls_per_second": calls / seconds}, timings={"total_s": seconds},
        labels={**recorded.meta.labels, "notes": [*recorded.meta.labels["notes"], "open loop"]}, started=started,
    )  # fmt: skip


def _cell(trace: Trace, meters: dict[str, Any], policy: dict[str, Any], share: float, capacity: int, seed: int) -> pd.DataFrame:
    """One row a document: who, what, and the meters summed over layers."""
    documents = meters["document"]
    # Documents are contiguous runs, in the order of the trace.
    first = np.flatnonzero(np.diff(trace.document, prepend=trace.document[0] - 1))
    frame = pd.DataFrame({
        "model": trace.meta.model, "corpus": trace.meta.corpus, "split": trace.meta.split,
        "policy": policy["name"], "miss_rule": policy["miss_rule"]["name"], "eviction": policy["eviction"]["name"], "admission": policy["admission"]["name"],
        "residency": share, "capacity": capacity, "seed": seed,
        "document": documents, "domain": [trace.meta.domains[index] for index in trace.domain[first]], "source": [trace.source(int(d)) for d in documents],
    })  # fmt: skip
    for name, values in meters.items():
        if values.ndim == 2:
            frame["capacity_misses" if name == "capacity" else name] = values.sum(axis=1)
    frame["token_layers"] = meters["tokens"].sum(axis=1)
    frame["tokens"] = meters["tokens"][:, 0]
    return frame
