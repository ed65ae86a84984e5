"""Stage judge_claims: the paper's claims, each judged by the rule that was locked before.

Inputs:  statistics tables of the experiments, config/claims.yaml, prereg/e5.yaml (the rules of E5's claims). Output: claims (one row a claim).
Steps:   check the lock and that every table was made under it; judge what was run; say of the rest why it is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from expertmiss.errors import UserError
from expertmiss.experiments.e5.plan import load_rules
from expertmiss.experiments.e5.verdicts import JUDGES as E5_JUDGES
from expertmiss.experiments.lock import verify
from expertmiss.experiments.output import Clock
from expertmiss.experiments.plans import load_claims
from expertmiss.experiments.verdicts import FAILS, HOLDS, INCONCLUSIVE, JUDGES, NOT_TESTABLE, Verdict
from expertmiss.files import read_json, sha256_file
from expertmiss.paths import project_root
from expertmiss.provenance import write_run
from expertmiss.stages import Context
from expertmiss.stats.tables import Table, joint_labels, read_table, write_table

STAGE = "judge_claims"
# "Reproduced" is kept for the paper's model: another model can only show the same direction.
OWN_PAGES = {"C3": "Experiment B (docs/experiment_b.md)", "C7": "the generation test (docs/generation.md)"}
"""Claims with a lock of their own, judged on pages that may be confirmatory."""
EVALUATION = "exploratory"  # the split that claims are judged on
WORDS = {HOLDS: "same direction", FAILS: "not the same direction", INCONCLUSIVE: "inconclusive", NOT_TESTABLE: "not testable here"}


def run(cfg: dict[str, Any], *, out: Path, context: Context, statistics: list[Path], claims: Path, e5: Path) -> None:
    """Write ``claims.parquet`` and ``run.json`` into ``out``.

    ``cfg``: ``report.quick`` (a quick run judges nothing), ``model`` (``substrate``, ``name``), ``not_measured`` (experiment -> why).

    Raises:
        UserError: the claims changed since they were locked, or a table was made under another lock.
    """
    clock = Clock()
    lock = verify(project_root(), "claims", claims)
    own_lock = verify(project_root(), "e5", e5)
    rules, own_rules = load_claims(claims), load_rules(e5)
    tables: dict[str, Table] = {}
    for path in statistics:
        made = read_json(path.parent / "run.json").get("config", {})
        for name, now in (("claims_lock", lock), *([("e5_lock", own_lock)] if path.stem == "e5_statistics" else [])):
            if made.get(name) != now:
                raise UserError(
                    f"{path}: made under other claims than those locked now ({str(made.get(name))[:12]}, {now[:12]}); run its experiment again"
                )
        tables[path.stem] = read_table(
            path, ["claim", "statistic", "estimate", "low", "high", "confidence", "clusters", "documents", "split"]
        )
        _check_terms(path, tables[path.stem].frame, rules)
    found = pd.DataFrame([_row(name, claim, rules, own_rules, tables, cfg) for name, claim in _claims(rules, own_rules) if name != "C8"])
    joint = joint_labels(list(tables.values()), quick=cfg["report"]["quick"])
    sizes = {name: table.labels.n for name, table in tables.items()}  # samples differ, so each experiment's is named
    sample = {
        f"{unit} in {name[:2].upper()}": n[unit] for name, n in sizes.items() for unit in (["streams"] if "streams" in n else ["documents"])
    }
    labels = replace(joint, n={"claims": len(found), **sample})
    sources = {path.name: sha256_file(path) for path in (*statistics, claims, e5)}
    outputs = write_table(out / "claims.parquet", found, labels, sources)
    write_run(
        out, stage=STAGE, experiment=context.experiment, name=f"claims judged on {cfg['model']['name']}", config={**cfg, "claims_lock": lock},
        source_hash=context.source_hash, inputs=[*statistics, claims, e5], outputs=outputs, artifacts=[outputs[1]],
        metrics={f"judged/{outcome}": int((found["outcome"] == outcome).sum()) for outcome in WORDS}, timings={}, labels=labels,
        started=clock.started,
    )  # fmt: skip


def _check_terms(path: Path, frame: pd.DataFrame, rules: dict[str, Any]) -> None:
    """Refuse statistics that were not made on the claims' terms: their coverage, their split."""
    if (frame["confidence"] != rules["confidence"]).any():
        raise UserError(
            f"{path}: intervals of coverage {frame['confidence'].iloc[0]:g}, claims are judged by {rules['confidence']:g}; set stats.confidence back"
        )
    if (frame["split"] != EVALUATION).any():
        raise UserError(f"{path}: made on split '{frame['split'].iloc[0]}'; claims are judged on '{EVALUATION}'")


def _claims(rules: dict[str, Any], own: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The claims in their order, those of E5 with its rules; what E5 adds stands behind the claim that it is about."""
    for name, claim in rules["claims"].items():
        yield name, {**claim, **own["claims"].get(name, {})}
        for further in own["claims"]:
            if further not in rules["claims"] and further.partition(" ")[0] == name:
                yield further, {"experiment": "E5", **own["claims"][further]}


def _row(
    name: str, claim: dict[str, Any], rules: dict[str, Any], own_rules: dict[str, Any], tables: dict[str, Table], cfg: dict[str, Any]
) -> dict[str, Any]:
    table, judge = ("e5_statistics", E5_JUDGES[name]) if name in E5_JUDGES else JUDGES.get(name, ("", None))
    row = {
        "claim": name,
        "says": claim["says"],
        "published": claim["published"],
        "experiment": claim["experiment"],
        "rule": claim.get("holds", ""),
    }
    if judge is None or table not in tables:
        page, reason = OWN_PAGES.get(name), cfg["not_measured"].get(claim["experiment"].lower())
        outcome = "on its own page" if page else "not measured" if reason else "not run"
        why = page or reason or f"{claim['experiment']} is not part of this run"
        return {**row, "outcome": outcome, "verdict": outcome, "why": why, "documents": 0, "clusters": 0}
    frame = tables[table].frame
    own = frame[frame["claim"] == name]
    size = {"documents": int(own["documents"].min()), "clusters": int(own["clusters"].min())}
    verdict: Verdict = judge(own, own_rules if name in E5_JUDGES else rules)
    if bool(own.get("few_residents", pd.Series(False)).any()):
        verdict = Verdict(NOT_TESTABLE, "fewer than 2K experts are resident, too few to choose a substitute from")
    if cfg["report"]["quick"]:
        return {**row, "outcome": "quick run", "verdict": "quick run: not judged", "why": "only the full study prints verdicts", **size}
    return {**row, "outcome": verdict.outcome, "verdict": WORDS[verdict.outcome], "why": verdict.why, **size}
