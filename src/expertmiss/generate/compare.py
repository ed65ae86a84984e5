"""Stage compare_answers: accuracy of every arm, and paired differences to the lossless reference.

Input:   ``answers.jsonl`` of generate_answers.
Outputs: ``arms.parquet`` (task x arm x scoring rule: accuracy with Wilson's interval, truncated answers, length, miss rate, mass),
         ``paired.parquet`` (the same but the reference: difference of accuracy with an interval over templates, McNemar, agreement of text
         and tokens, first divergence).
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from expertmiss.errors import UserError
from expertmiss.files import atomic_path, read_json
from expertmiss.generate.accuracy import wilson
from expertmiss.generate.paired import first_divergence, mcnemar, token_agreement
from expertmiss.generate.solve import Row
from expertmiss.provenance import write_run
from expertmiss.stages import Context
from expertmiss.stats.bootstrap import ClusterBootstrap, ratio_difference

STAGE = "compare_answers"
REFERENCE = "fetch_all"


def run(cfg: dict[str, Any], *, out: Path, context: Context, answers: Path) -> None:
    """Compare the arms of ``answers`` into ``out``; ``cfg``: ``stats``.

    Raises:
        UserError: the answers cannot be read, or an arm lacks a problem that the reference has.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    try:
        rows = [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as problem:
        raise UserError(f"{answers}: cannot be read ({type(problem).__name__}); run generate_answers again") from None
    labels = read_json(answers.with_name("run.json"))["labels"]
    arms, paired = arm_table(rows), paired_table(rows, cfg["stats"])
    for name, table in (("arms", arms), ("paired", paired)):
        with atomic_path(out / f"{name}.parquet") as path:
            table.to_parquet(path, index=False)
    outputs = [out / "arms.parquet", out / "paired.parquet"]
    primary = arms[arms["primary"]]
    write_run(
        out, stage=STAGE, experiment=context.experiment, name="answers of every arm against the lossless reference", config=cfg,
        source_hash=context.source_hash, inputs=[answers], outputs=outputs, artifacts=outputs,
        metrics={f"accuracy/{row['task']}/{row['arm']}": row["accuracy"] for row in primary.to_dict("records")},
        timings={"total_s": time.monotonic() - clock}, labels=labels, started=started,
    )  # fmt: skip


def _groups(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """Rows by (task, arm), problems in one order."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: str(row["problem"])):
        found.setdefault((row["task"], row["arm"]), []).append(row)
    return dict(sorted(found.items(), key=lambda entry: (entry[0][0], entry[0][1] != REFERENCE)))


def arm_table(rows: Sequence[Row]) -> pd.DataFrame:
    """One row a task, arm and scoring rule that was measured; ``miss_rate`` and ``mass`` are over the decode steps (NaN where there are none),
    mass a token-layer."""
    found = []
    for (task, arm), mine in _groups(rows).items():
        meters = {name: sum(row["meters"][name] for row in mine) for name in ("calls", "hits", "tokens", "mass")}
        for index, rule in enumerate(mine[0]["correct"]):
            right = [row["correct"][rule] for row in mine]
            if None in right:
                continue
            share = wilson(sum(right), len(right))
            found.append(
                {
                    "task": task, "arm": arm, "rule": rule, "primary": index == 0, "n": share["n"], "correct": share["correct"],
                    "accuracy": share["accuracy"], "low": share["interval"][0], "high": share["interval"][1],
                    "truncated": sum(row["finish"] == "cap" for row in mine), "unmarked": sum(bool(row["answers"]) and row["answers"][rule] is None for row in mine),
                    "length": float(np.mean([len(row["tokens"]) for row in mine])),
                    "miss_rate": 1 - meters["hits"] / meters["calls"] if meters["calls"] else np.nan,
                    "mass": meters["mass"] / meters["tokens"] if meters["tokens"] else np.nan,
                }
            )  # fmt: skip
    return pd.DataFrame(found)


def paired_table(rows: Sequence[Row], stats: dict[str, Any]) -> pd.DataFrame:
    """One row a task, arm and scoring rule, the reference left out; ``low`` and ``high`` by cluster bootstrap over templates."""
    groups, found = _groups(rows), []
    for (task, arm), mine in groups.items():
        if arm == REFERENCE:
            continue
        reference = groups.get((task, REFERENCE), [])
        if [row["problem"] for row in mine] != [row["problem"] for row in reference]:
            raise UserError(f"answers of task {task}: arm {arm} and {REFERENCE} do not hold the same problems; run generate_answers again")
        bootstrap = ClusterBootstrap(
            [row["source"] for row in mine], resamples=stats["resamples"], confidence=stats["confidence"], seed=stats["seed"],
            min_clusters=stats["min_clusters"],
        )  # fmt: skip
        pairs = list(zip(mine, reference, strict=True))
        splits = [first_divergence(one["tokens"], other["tokens"]) for one, other in pairs]
        places = np.array([np.nan if split is None else split for split in splits])
        same = {
            "same_tokens": float(np.mean([split is None for split in splits])),
            "same_text": float(np.mean([one["text"] == other["text"] for one, other in pairs])),
            "token_agreement": float(np.mean([token_agreement(one["tokens"], other["tokens"]) for one, other in pairs])),
            "median_divergence": float(np.nanmedian(places)) if np.isfinite(places).any() else np.nan,
        }
        for index, rule in enumerate(mine[0]["correct"]):
            right = np.array([[one["correct"][rule], other["correct"][rule]] for one, other in pairs], dtype=object)
            if (right == None).any():  # noqa: E711 (elementwise)
                continue
            hits, ones = right.astype(float), np.ones(len(pairs))
            interval = bootstrap.interval(ratio_difference, np.stack([hits[:, 0], ones, hits[:, 1], ones], 1))
            gained, lost = int(((hits[:, 0] == 1) & (hits[:, 1] == 0)).sum()), int(((hits[:, 0] == 0) & (hits[:, 1] == 1)).sum())
            found.append(
                {
                    "task": task, "arm": arm, "rule": rule, "primary": index == 0, "n": len(pairs), "templates": interval.clusters,
                    "difference": float(interval.estimate), "low": float(interval.low), "high": float(interval.high), "reliable": interval.reliable,
                    "gained": gained, "lost": lost, "mcnemar": mcnemar(gained, lost), **same,
                }
            )  # fmt: skip
    return pd.DataFrame(found)
