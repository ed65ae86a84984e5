"""Stage pilot_experiment_b: the numbers that Experiment B's plan needs, from models run on the pilot split alone.

Inputs:  tokens.parquet, calibration trace, prereg/experiment_b.yaml, prereg/decide_experiment_b.py, the model's folder.
Outputs: proposal.json (what `expertmiss prereg lock experiment_b` freezes, or why nothing can be locked); cells.parquet (document x arm); tables
         b_plan, b_supply, b_arms, b_pairs, b_effects, b_power.
Steps:   reference run (weight classes, supply, levels); arms at the levels; delta from the mean loss of the heavy and the light arm; number of documents
         and error rates by simulation of the decision.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from expertmiss.errors import UserError
from expertmiss.experiments.b.emulate import Setting, cells_frame, open_setting, run_arms, select_documents
from expertmiss.experiments.b.levels import Levels, find_levels
from expertmiss.experiments.b.plan import load_decision, load_plan, plan_arms
from expertmiss.experiments.b.power import find_size, power_table, quotas
from expertmiss.experiments.b.tables import arms_table, decision_rules, effects_table, mean_loss, pairs, plan_table
from expertmiss.experiments.output import Clock
from expertmiss.files import atomic_path, clear_parts, sha256_file, write_json
from expertmiss.paths import project_root
from expertmiss.provenance import Labels, write_run
from expertmiss.stages import Context
from expertmiss.stats.tables import write_table
from expertmiss.traces.capture import local_files

STAGE = "pilot_experiment_b"
POWER = ["documents", "effect", "verdict", "share", "simulations"]


def run(cfg: dict[str, Any], *, out: Path, context: Context, tokens: Path, calibration: Path, plan: Path, decision: Path) -> None:
    """Write the proposal, the tables and ``run.json`` into ``out``.

    ``cfg``: ``model``, ``host.name``, ``corpus.name``, ``emulate.torch_threads``, ``b.pilot_documents``. ``plan`` and ``decision`` are the files of
    the project (named so that a workflow sees them change).

    Raises:
        UserError: a class of misses has no supply; documents, model or traces that do not fit.
    """
    clock = Clock()
    root = project_root()
    rules, judge = load_plan(root), load_decision(root)
    first = rules["first_targets_left_out"]
    chosen = select_documents(tokens, rules["pilot_split"], cfg["b"]["pilot_documents"], rules["documents_per_source"])
    if chosen["source"].nunique() <= chosen["domain"].nunique():
        raise UserError(f"b.pilot_documents: {len(chosen)} documents are too few for an interval over sources within domains; use more")
    # Which documents the study may draw on: their names and hashes; no model runs on them. Nothing is known of domains that the pilot lacks.
    study = select_documents(tokens, rules["split"], int(max(rules["sizes"])), rules["documents_per_source"], set(chosen["domain"]))
    setting = open_setting(cfg, rules, chosen, tokens=tokens, calibration=calibration)
    levels = _levels(setting, rules, out, context)
    arms = plan_arms(rules, levels.mu)
    begun = time.monotonic()
    parts = run_arms(setting, arms, levels.classes, out=out, context=context, what="pilot of experiment B")
    seconds = time.monotonic() - begun
    cells = cells_frame(setting, parts, arms, first)
    proposal, tables = propose(cells, levels, rules, judge, Counter(study["domain"]))
    proposal |= {
        "model": setting.model_digest, "residency": rules["residency"], "capacity": setting.runner.emulator.rows[0].capacity,
        "plan": sha256_file(plan), "decision": sha256_file(decision), "tokens": sha256_file(tokens), "domains": sorted(set(chosen["domain"])),
    }  # fmt: skip
    with atomic_path(out / "cells.parquet") as path:
        cells.to_parquet(path, index=False)
    write_json(out / "proposal.json", proposal)
    labels = {
        "substrate": cfg["model"]["substrate"], "routing": "own", "time": "none", "host": cfg["host"]["name"], "status": "exploratory",
        "n": {"documents": len(chosen), "sources": int(chosen["source"].nunique()), "tokens": int(len(chosen) * cells["scored"].iloc[0])},
        "notes": ["pilot of experiment B", "residency schedule of fetch_all"],
    }  # fmt: skip
    sources = {path.name: sha256_file(path) for path in (tokens, calibration, plan, decision)}
    written = [out / "cells.parquet", out / "proposal.json"]
    for name, frame in tables.items():
        written += write_table(out / f"{name}.parquet", frame.assign(model=cfg["model"]["name"]), Labels.of(labels), sources)
    primary = tables["b_effects"].iloc[0]
    write_run(
        out, stage=STAGE, experiment=context.experiment, name=f"pilot of experiment B with {cfg['model']['name']} on {cfg['corpus']['name']}",
        config=cfg, source_hash=context.source_hash, inputs=[tokens, calibration, plan, decision, *local_files(Path(cfg["model"]["path"]))],
        outputs=written, artifacts=[path for path in written if path.suffix in (".csv", ".json")],
        metrics={
            **{f"mu/{name}": float(np.mean(budgets)) for name, budgets in levels.mu.items()},
            "loss": proposal["loss"][0], "difference": float(primary["estimate"]), "sd": float(primary["sd"]),
            "share_passed": float(primary["share_passed"]), "n": proposal["n"], "row_tokens_per_second": setting.text.size * (1 + len(arms)) / seconds,
        },
        timings={"arms_s": seconds, "total_s": time.monotonic() - clock.begun}, labels=labels, started=clock.started,
    )  # fmt: skip
    clear_parts(out)


def _levels(setting: Setting, rules: Mapping[str, Any], out: Path, context: Context) -> Levels:
    """Levels from a reference run of all documents."""
    parts = run_arms(setting, [], [], out=out, context=context, what="reference of experiment B")
    misses: dict[str, NDArray[Any]] = {name: np.concatenate([part[f"miss.{name}"] for part in parts]) for name in ("layer", "weight")}
    misses["document"] = np.repeat(np.arange(len(parts)), [len(part["miss.layer"]) for part in parts])
    layers = setting.runner.emulator.geometry.layers
    return find_levels(misses, (len(parts), layers), setting.text.shape[1], rules)


def propose(
    cells: pd.DataFrame, levels: Levels, rules: Mapping[str, Any], judge: ModuleType, available: Mapping[str, int]
) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """The numbers to be locked (``refusal`` says why they must not be, or is empty), and the tables.

    Args:
        cells: see :func:`cells_frame`.
        available: documents of the confirmatory split that may enter, by domain of the pilot.
    """
    paired, arms = pairs(cells, rules, judge), arms_table(cells, rules, judge)
    effects = effects_table(paired, rules, judge)
    primary = rules["primary"]
    own = paired[(paired["kind"] == "natural") & (paired["level"] == primary)]

    def rules_for(quota: Mapping[str, int]) -> dict[str, Any]:
        return decision_rules(rules, levels.mu, rules["delta_share"] * mean_loss(cells, rules, judge, quota)[0])

    numbers: dict[str, Any] = {"classes": [list(bounds) for bounds in levels.classes], "mu": levels.mu, "n": 0, "refusal": ""}
    quota, power = quotas(available, int(max(rules["sizes"]))), pd.DataFrame(columns=POWER)
    estimate, low, high = mean_loss(cells, rules, judge, quota)
    if not low > 0:
        numbers["refusal"] = (
            f"the pilot's mean loss of the heavy and the light arm, {estimate:.5f} nats with 95 % interval [{low:.5f}, {high:.5f}], is not clearly above 0, "
            "so there is no margin of equivalence"
        )
    else:
        passed = float(own["passed"].mean())
        try:
            if passed < rules["documents_share"]:
                raise UserError(
                    f"the manipulation check passes in {100 * passed:.0f} % of the pilot documents, {100 * rules['documents_share']:.0f} % are needed"
                )
            numbers["n"] = find_size(judge, rules, rules_for, own, available)
            quota = quotas(available, numbers["n"])
        except UserError as problem:
            numbers["refusal"] = str(problem)
        power = power_table(judge, rules, rules_for(quota), own, quota)
    loss = mean_loss(cells, rules, judge, quota)
    numbers |= {"delta": rules["delta_share"] * loss[0], "loss": list(loss)}
    supply = pd.DataFrame([
        {
            "class": name, "layer": layer, "supply": float(value), "quantile": rules["supply_quantile"],
            "bound": float(getattr(levels.classes[layer], name)), "mu": levels.mu[primary][layer],
        }
        for name, values in levels.supply.items() for layer, value in enumerate(values)
    ])  # fmt: skip
    tables = {
        "b_plan": plan_table(numbers, rules), "b_supply": supply, "b_arms": arms, "b_pairs": paired, "b_effects": effects, "b_power": power,
    }  # fmt: skip
    return numbers, tables
