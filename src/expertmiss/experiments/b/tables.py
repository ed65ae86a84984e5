"""The tables that pilot and confirmatory run share: what the arms did, the paired differences, the comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student
from statsmodels.stats.multitest import multipletests

from expertmiss.errors import UserError
from expertmiss.experiments.b.emulate import REFERENCE
from expertmiss.experiments.judge import WORDS
from expertmiss.experiments.verdicts import judge_c3

CELLS = (
    "document",
    "domain",
    "source",
    "digest",
    "arm",
    "order",
    "level",
    "kind",
    "mu",
    "nll",
    "mass",
    "substituted",
    "calls",
    "token_layers",
)


def decision_rules(plan: Mapping[str, Any], mu: Mapping[str, Sequence[float]], delta: float) -> dict[str, Any]:
    """What the decision takes beside the registered documents; its ``mu`` is the mean over layers of the primary level's budgets."""
    names = ("mass_tolerance", "arms_tolerance", "documents_share", "confidence", "equivalence_confidence")
    return {**{name: plan[name] for name in names}, "mu": float(np.mean(mu[plan["primary"]])), "delta": delta}


def pairs(cells: pd.DataFrame, plan: Mapping[str, Any], decision: ModuleType) -> pd.DataFrame:
    """One row a document and comparison: heavy minus light, realised masses, whether the manipulation check passes.

    Raises:
        UserError: an arm lacks its partner in some document.
    """
    keys = ["kind", "level", "mu", "document", "domain", "source", "digest"]
    wide = cells[cells["order"].isin(["heavy", "light"])].pivot(index=keys, columns="order", values=["nll", "mass"])
    if wide.empty or wide.isna().any(axis=None):
        raise UserError("Experiment B: cells lack the heavy or the light arm of a document; run the emulation again")
    wide.columns = ["_".join(names) for names in wide.columns]
    found = wide.reset_index()
    found["difference"] = found["nll_heavy"] - found["nll_light"]
    found["passed"] = decision.check(
        found["mass_heavy"].to_numpy(),
        found["mass_light"].to_numpy(),
        found["mu"].to_numpy(),
        plan["mass_tolerance"],
        plan["arms_tolerance"],
    )
    return found


def effects_table(paired: pd.DataFrame, plan: Mapping[str, Any], decision: ModuleType) -> pd.DataFrame:
    """One row a comparison, the primary first: effect, both intervals, two-sided p, Holm's p over the secondary ones, realised masses.

    ``verdict`` and what belongs to it are empty: :func:`with_verdict` fills them for the primary comparison of a confirmatory run.
    """
    rows = []
    for (kind, level), part in paired.groupby(["kind", "level"], sort=False):
        estimate, error, freedom = decision.clustered_mean(part["difference"], part["source"], part["domain"])
        low, high = decision.bounds(estimate, error, freedom, plan["confidence"])
        inner = decision.bounds(estimate, error, freedom, plan["equivalence_confidence"])
        rows.append({
            "comparison": f"{level}, {kind}", "kind": kind, "level": level, "mu": part["mu"].iloc[0],
            "role": "primary" if (kind, level) == ("natural", plan["primary"]) else "secondary", "unit": "nats", "estimate": estimate, "low": low,
            "high": high, "low_equivalence": inner[0], "high_equivalence": inner[1],
            "p": float(2 * student.sf(abs(estimate / error), freedom)) if error > 0 else float("nan"), "mass_heavy": part["mass_heavy"].mean(),
            "mass_light": part["mass_light"].mean(), "share_passed": part["passed"].mean(), "sd": part["difference"].std(ddof=1),
        })  # fmt: skip
    found = pd.DataFrame(rows).sort_values(["role", "mu"], kind="stable", ignore_index=True)
    secondary = (found["role"] == "secondary") & found["p"].notna()
    found["p_holm"] = np.nan
    if secondary.any():
        found.loc[secondary, "p_holm"] = multipletests(found.loc[secondary, "p"].to_numpy(), method="holm")[1]
    return _sized(found, paired, plan).assign(verdict="", reason="", status="", lock="", claim="", not_zero=False)


def with_verdict(effects: pd.DataFrame, result: Mapping[str, Any], min_sources: int) -> pd.DataFrame:
    """``effects`` with the decision, and what it says of claim C3, in the primary comparison's row."""
    found, primary = effects.copy(), effects["role"] == "primary"
    for name in ("verdict", "reason", "status", "lock", "not_zero"):
        found.loc[primary, name] = result[name]
    found.loc[primary, "claim"] = WORDS[judge_c3(found[primary], {"min_clusters": min_sources}).outcome]
    return found


def arms_table(cells: pd.DataFrame, plan: Mapping[str, Any], decision: ModuleType) -> pd.DataFrame:
    """One row an arm: loss against the reference with its interval, share of calls substituted, realised mass, mean gate weight of a substituted call."""
    lossless = cells[cells["arm"] == REFERENCE].set_index("document")["nll"]
    rows = []
    for arm, part in cells[cells["arm"] != REFERENCE].groupby("arm", sort=False):
        loss = part["nll"].to_numpy() - lossless.loc[part["document"]].to_numpy()
        estimate, error, freedom = decision.clustered_mean(loss, part["source"], part["domain"])
        low, high = decision.bounds(estimate, error, freedom, plan["confidence"])
        about = part.iloc[0]
        mass, calls = float((part["mass"] * part["token_layers"]).sum()), int(part["substituted"].sum())
        rows.append({
            "arm": arm, "order": about["order"], "kind": about["kind"], "level": about["level"], "mu": about["mu"], "unit": "nats", "estimate": estimate,
            "low": low, "high": high, "substituted_share": calls / part["calls"].sum(), "mass": part["mass"].mean(),
            "least_mass": part["least_mass"].min(), "weight": mass / calls if calls else float("nan"),
        })  # fmt: skip
    return _sized(pd.DataFrame(rows), cells, plan)


def _sized(frame: pd.DataFrame, sample: pd.DataFrame, plan: Mapping[str, Any]) -> pd.DataFrame:
    clusters = int(sample["source"].nunique())
    few = f"inconclusive: n clusters < {plan['min_sources']}"
    return frame.assign(
        confidence=plan["confidence"], clusters=clusters, documents=int(sample["document"].nunique()),
        reliable="yes" if clusters >= plan["min_sources"] else few,
    )  # fmt: skip


def mean_loss(cells: pd.DataFrame, plan: Mapping[str, Any], decision: ModuleType, quota: Mapping[str, int]) -> tuple[float, float, float]:
    """Loss against the reference of the heavy and the light arm at the primary level, mean of the two, nats, with its interval.

    Domains weigh as in a study with ``quota`` documents of each; otherwise mean and interval are the decision's.
    """
    natural = (cells["kind"] == "natural") & (cells["level"] == plan["primary"]) & cells["order"].isin(["heavy", "light"])
    lossless = cells[cells["arm"] == REFERENCE].set_index("document")
    about = lossless[lossless["domain"].isin(list(quota))]
    loss = (cells[natural].groupby("document")["nll"].mean() - lossless["nll"])[about.index]
    weight = about["domain"].map(quota) / about["domain"].map(about["domain"].value_counts())
    weight *= len(about) / weight.sum()
    # A weighted mean is the mean of each domain's mean plus its weighted residuals.
    centre = loss.groupby(about["domain"]).transform("mean")
    _, error, freedom = decision.clustered_mean(weight * (loss - centre), about["source"], about["domain"])
    estimate = float((weight * loss).mean())
    return estimate, *decision.bounds(estimate, error, freedom, plan["confidence"])


def outcomes_of(paired: pd.DataFrame, plan: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The primary comparison as the decision takes it."""
    chosen = paired[(paired["kind"] == "natural") & (paired["level"] == plan["primary"])]
    columns = ("document", "digest", "source", "domain", "nll_heavy", "nll_light", "mass_heavy", "mass_light")
    return {name: chosen[name].astype(str).tolist() if name == "document" else chosen[name].tolist() for name in columns}


def plan_table(numbers: Mapping[str, Any], plan: Mapping[str, Any]) -> pd.DataFrame:
    """The registered numbers: name, value, meaning."""
    words = {
        "delta": "margin of equivalence, nats per token",
        "n": "documents", "mass_tolerance": "realised mass around the target, each arm", "arms_tolerance": "realised masses of the arms apart, at most",
        "documents_share": "share of documents that must pass the check",
    }  # fmt: skip
    values = {
        **{level: np.mean(budgets) for level, budgets in numbers["mu"].items()}, "delta": numbers["delta"], "n": numbers["n"],
        **{name: plan[name] for name in ("mass_tolerance", "arms_tolerance", "documents_share")},
    }  # fmt: skip
    rows = [
        {"name": name, "value": float(value), "meaning": words.get(name, "substituted mass per token, mean over layers")}
        for name, value in values.items()
    ]
    return pd.DataFrame(rows)
