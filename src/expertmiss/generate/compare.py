"""Stage compare_answers: accuracy and agreement of every arm against the lossless reference, and the registered predictions.

Inputs:  ``answers.jsonl`` of generate_answers, its problems, prereg/ (plan, decision, lock, the accepted result if there is one).
Outputs: e7_accuracy (task x arm x scoring rule), e7_paired (the same but the reference: differences, agreement, divergence), e7_flips (mass against
         flips), e7_orders (mass against agreement over arms), e7_survival (share of equal beginnings by position), e7_passes (pass@k),
         e7_statistics (what the predictions are judged by), e7_predictions, e7_examples; under a lock ``result.json``
         (`expertmiss prereg accept generation` keeps the first one).
Steps:   refuse answers of another lock; measure; judge. All but pass@k is about each problem's first answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from expertmiss.errors import UserError
from expertmiss.experiments.lock import CHANGED, Standing, check_output, compare, result_path, stands
from expertmiss.experiments.output import Clock
from expertmiss.files import read_json, sha256_file, write_json
from expertmiss.generate.examples import example_table
from expertmiss.generate.plan import NAME, NONE, PLAN, load_decision, load_plan
from expertmiss.generate.problems import read_problems
from expertmiss.generate.solve import Row
from expertmiss.generate.tables import REFERENCE, Groups, Measured, arm_table, groups_of, pass_table
from expertmiss.paths import project_root
from expertmiss.provenance import Labels, write_run
from expertmiss.stages import Context
from expertmiss.stats.tables import with_sample, write_table

STAGE = "compare_answers"
SAYS = {
    "not_worse": "{arm} is at most {margin:.0f} points less accurate than the reference",
    "worse": "{arm} is less accurate than the reference",
    "more_agreement": "{arm} agrees with the reference more often than {against}",
    "mass_orders_arms": "less mass, more agreement: at least {concordant:.0f} % of pairs of arms",
    "mass_blind": "a problem's mass does not tell whether it flips under {arm}",
}  # fmt: skip
"""What a registered rule predicts, in words."""
PREDICTED = {
    "id": str, "task": str, "rule": str, "says": str, "statistic": str, "outcome": str, "verdict": str, "why": str, "estimate": float, "low": float,
    "high": float, "detectable": float, "problems": int, "templates": int, "lock": str, "reliable": str, "confidence": float,
}  # fmt: skip
"""Columns of e7_predictions."""


def run(cfg: dict[str, Any], *, out: Path, context: Context, answers: Path, problems: Path, lock: str = NONE) -> None:
    """Compare the arms of ``answers`` into ``out``.

    ``cfg``: ``stats``, ``report.quick`` (a quick run judges nothing), ``generate.pass_at``, ``model.name``, ``profile``.

    Raises:
        UserError: the answers cannot be read, an arm lacks a problem that the reference has, another lock, a result that contradicts the accepted one.
    """
    clock = Clock()
    root, rows, made = project_root(), read_answers(answers), read_json(answers.with_name("run.json"))
    plan = load_plan(root)
    standing = stands(root, NAME, cfg["profile"]) if lock != NONE else None
    if standing is not None:
        check_output(answers, made["config"]["lock"], standing)
    elif made["config"]["lock"] != NONE:
        raise UserError(f"{answers}: made under lock {made['config']['lock'][:12]}, this run has none; run generate_answers again")
    if standing is not None and cfg["stats"]["confidence"] != plan["rules"]["confidence"]:
        raise UserError(
            f"stats.confidence: {cfg['stats']['confidence']:g} is not the registered {plan['rules']['confidence']:g} ({PLAN}); set it back"
        )
    first = [row for row in rows if row["sample"] == 0]
    groups = groups_of(first)
    measured = Measured(groups, cfg["stats"], plan["order_arms"])
    found = judged(plan, load_decision(root), measured.statistics(plan["predictions"]), groups, cfg["report"]["quick"], standing)
    tables = {
        "e7_accuracy": arm_table(first).assign(confidence=cfg["stats"]["confidence"]), "e7_paired": measured.paired(), "e7_flips": measured.flips(),
        "e7_orders": measured.orders(), "e7_survival": measured.survivals(), "e7_passes": pass_table(rows, cfg["generate"]["pass_at"], cfg["stats"]),
        "e7_statistics": measured.statistics(plan["predictions"]), "e7_predictions": found,
        "e7_examples": example_table(groups, {row["problem"]: row["prompt"] for row in read_problems(problems, "build_tasks").to_dict("records")}),
    }  # fmt: skip
    labels = with_sample(
        Labels.of(made["labels"]), {"problems": len({row["problem"] for row in first}), "templates": len({row["source"] for row in first})}
    )
    written: list[Path] = []
    for name, table in tables.items():
        written += write_table(
            out / f"{name}.parquet", table.assign(model=cfg["model"]["name"]), labels, {answers.name: sha256_file(answers)}
        )
    primary = tables["e7_accuracy"].query("primary and accuracy == accuracy")
    metrics = {f"accuracy/{row['task']}/{row['arm']}": row["accuracy"] for row in primary.to_dict("records")}
    metrics |= {f"same_text/{row['task']}/{row['arm']}": row["same_text"] for row in tables["e7_paired"].to_dict("records")}
    metrics |= {f"predictions/{outcome}": int((found["outcome"] == outcome).sum()) for outcome in ("held", "failed", "undecided")}
    if standing is not None and not cfg["report"]["quick"]:
        result = {
            "lock": standing.digest, "status": standing.status, "estimate": None,
            "verdict": ", ".join(f"{row['id']} {row['outcome']}" for row in found.to_dict("records")),
        }  # fmt: skip
        accepted = root / result_path(NAME, cfg["profile"])
        if accepted.is_file():
            compare(result, read_json(accepted), result_path(NAME, cfg["profile"]))
        write_json(out / "result.json", result)
        written.append(out / "result.json")
    changed = standing is not None and standing.status == CHANGED
    write_run(
        out, stage=STAGE, experiment=context.experiment, name="answers of every arm against the lossless reference" + (f", {CHANGED}" if changed else ""),
        config={**cfg, "lock": lock}, source_hash=context.source_hash, inputs=[answers, problems], outputs=written,
        artifacts=[path for path in written if path.suffix != ".parquet"], metrics=metrics, timings={}, labels=labels, started=clock.started,
    )  # fmt: skip


def read_answers(answers: Path) -> list[Row]:
    """Rows of ``answers.jsonl``.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as problem:
        raise UserError(f"{answers}: cannot be read ({type(problem).__name__}); run generate_answers again") from None


def judged(
    plan: Mapping[str, Any], decision: Any, statistics: pd.DataFrame, groups: Groups, quick: bool, standing: Standing | None
) -> pd.DataFrame:
    """One row a registered prediction of a task that was run: what was predicted, what was measured, the outcome.

    ``verdict`` is what may be said: a quick run judges nothing, and without an unchanged lock the outcome is exploratory.
    """
    label = " (exploratory)" if standing is None else "" if standing.status != CHANGED else f" ({CHANGED})"
    rows = statistics.to_dict("records")
    outcomes = {row["id"]: row for row in decision.decide(plan, rows)}
    tasks, found = {task for task, _ in groups}, []
    words = {"margin": 100 * plan["rules"]["margin"], "concordant": 100 * plan["rules"]["concordant"]}
    for prediction in plan["predictions"]:
        if prediction["task"] not in tasks:
            continue
        outcome, arm, against = outcomes[prediction["id"]], prediction.get("arm", ""), prediction.get("against", "")
        name = decision.STATISTICS[prediction["rule"]]
        own = [
            row for row in rows if (row["task"], row["statistic"], row["arm"], row["against"]) == (prediction["task"], name, arm, against)
        ]
        verdict = "quick run: not judged" if quick else outcome["outcome"] + label
        found.append({
            "id": prediction["id"], "task": prediction["task"], "rule": prediction["rule"],
            "says": SAYS[prediction["rule"]].format(arm=arm, against=against, **words), "statistic": name, "outcome": outcome["outcome"], "verdict": verdict,
            "why": "only the full study prints verdicts" if quick else outcome["why"],
            **{column: outcome.get(column, np.nan) for column in ("estimate", "low", "high")}, "detectable": own[0]["detectable"] if own else np.nan,
            "problems": len(groups[prediction["task"], REFERENCE]), "templates": len({row["source"] for row in groups[prediction["task"], REFERENCE]}),
            "lock": standing.digest if standing is not None else NONE, "reliable": own[0]["reliable"] if own else "not measured", "confidence": plan["rules"]["confidence"],
        })  # fmt: skip
    return pd.DataFrame(found, columns=list(PREDICTED)).astype(PREDICTED)
