"""Stage decide_experiment_b: the registered decision on the confirmatory cells.

Inputs:  cells.parquet of run_experiment_b, prereg/ (lock, plan, decision, the accepted result if there is one).
Outputs: result.json (`expertmiss prereg accept experiment_b` keeps the first one); tables b_plan, b_arms, b_pairs, b_effects, b_power,
         b_statistics (claim C3).
Steps:   refuse cells of another lock; decide the primary comparison; secondary comparisons with Holm's correction; error rates at the locked size;
         compare with the accepted result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from expertmiss.experiments.b.confirm import labels_of
from expertmiss.experiments.b.plan import NAME, load_decision, load_plan
from expertmiss.experiments.b.power import power_table
from expertmiss.experiments.b.tables import CELLS, arms_table, decision_rules, effects_table, outcomes_of, pairs, plan_table, with_verdict
from expertmiss.experiments.lock import check_output, compare, result_path, stands
from expertmiss.experiments.output import Clock
from expertmiss.files import read_json, sha256_file, write_json
from expertmiss.paths import project_root
from expertmiss.provenance import Labels, write_run
from expertmiss.stages import Context
from expertmiss.stats.tables import labels_of as read_labels
from expertmiss.stats.tables import read_table, write_table

STAGE = "decide_experiment_b"
SHOWN = (
    "estimate",
    "low",
    "high",
    "low_equivalence",
    "high_equivalence",
    "documents",
    "sources",
    "share_passed",
    "mass_heavy",
    "mass_light",
)


def run(cfg: dict[str, Any], *, out: Path, context: Context, cells: Path, lock: Path) -> None:
    """Write ``result.json``, the tables and ``run.json`` into ``out``.

    ``cfg``: ``model.name``, ``profile``.

    Raises:
        UserError: nothing is locked, a plan's file changed, cells of another lock, a result that contradicts the accepted one.
    """
    clock = Clock()
    root, profile = project_root(), cfg["profile"]
    plan, judge, standing = load_plan(root), load_decision(root), stands(root, NAME, cfg["profile"])
    frame = read_table(cells, [*CELLS, "lock"]).frame
    for made_under in frame["lock"].unique():
        check_output(cells, made_under, standing)
    numbers = standing.entry["numbers"]
    paired = pairs(frame, plan, judge)
    rules = decision_rules(plan, numbers["mu"], numbers["delta"])
    found = judge.decide({**rules, "documents": standing.entry["documents"]}, outcomes_of(paired, plan))
    result = {
        "lock": standing.digest, "status": standing.status, "verdict": found["verdict"], "not_zero": found["not_zero"], "reason": found["reason"],
        "delta": numbers["delta"], "mu": rules["mu"], **{name: found.get(name) for name in SHOWN},
    }  # fmt: skip
    accepted = root / result_path(NAME, profile)
    apart = compare(result, read_json(accepted), result_path(NAME, profile)) if accepted.is_file() else None
    effects = with_verdict(effects_table(paired, plan, judge), result, plan["min_sources"])
    own = paired[(paired["kind"] == "natural") & (paired["level"] == plan["primary"])]
    tables = {
        "b_plan": plan_table(numbers, plan), "b_arms": arms_table(frame, plan, judge), "b_pairs": paired, "b_effects": effects,
        "b_power": power_table(judge, plan, rules, own, own["domain"].value_counts().to_dict()), "b_statistics": _statistics(effects),
    }  # fmt: skip
    made = read_labels(cells)
    labels = Labels.of(labels_of(made.substrate, made.host, standing, frame))
    write_json(out / "result.json", result)
    written = [out / "result.json"]
    sources = {path.name: sha256_file(path) for path in (cells, lock)}
    for name, table in tables.items():
        written += write_table(out / f"{name}.parquet", table.assign(model=cfg["model"]["name"]), labels, sources)
    write_run(
        out, stage=STAGE, experiment=context.experiment, name=f"experiment B decided: {result['verdict']}", config={**cfg, "lock": standing.digest},
        source_hash=context.source_hash, inputs=[cells, lock], outputs=written,
        artifacts=[path for path in written if path.suffix in (".csv", ".json")],
        metrics={name: float(result[name]) for name in ("delta", "mu", *SHOWN) if result[name] is not None}
        | ({"difference_from_accepted": apart} if apart is not None else {}),
        timings={}, labels=labels, started=clock.started,
    )  # fmt: skip


def _statistics(effects: pd.DataFrame) -> pd.DataFrame:
    """Claim C3: the primary comparison, the registered verdict and what it says of the claim."""
    columns = [
        "unit",
        "estimate",
        "low",
        "high",
        "confidence",
        "clusters",
        "reliable",
        "documents",
        "verdict",
        "reason",
        "status",
        "not_zero",
        "lock",
    ]
    primary = effects[effects["role"] == "primary"]
    return primary[columns].assign(claim="C3", claim_verdict=primary["claim"], statistic="heavy minus light, primary level")
