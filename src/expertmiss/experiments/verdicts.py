"""The rules that judge the paper's claims, as pure functions of statistics: ``holds``, ``fails`` or ``inconclusive``, with the reason.

The rules and their numbers are those of ``config/claims.yaml``. ``L`` and ``U`` are the bounds of a statistic's interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

HOLDS, FAILS, INCONCLUSIVE, NOT_TESTABLE = "holds", "fails", "inconclusive", "not testable here"


class Verdict(NamedTuple):
    """What a claim's rule says, and why in a few words."""

    outcome: str
    why: str


def few_clusters(table: pd.DataFrame, rules: Mapping[str, Any]) -> Verdict | None:
    """The verdict when there are fewer clusters than any quality claim needs; ``None`` when there are enough."""
    least = int(table["clusters"].min())
    return Verdict(INCONCLUSIVE, f"{least} clusters, {rules['min_clusters']} are needed") if least < rules["min_clusters"] else None


def judge_c1(table: pd.DataFrame, rules: Mapping[str, Any]) -> Verdict:
    """C1 from E1's statistics."""
    rule, at = rules["claims"]["C1"], table.set_index("statistic")
    if small := few_clusters(table, rules):
        return small
    if not at.loc["loss of substitute_all", "low"] > rule["min_loss"]:
        return Verdict(INCONCLUSIVE, f"the loss of substitute_all is not clearly above {100 * rule['min_loss']:g} %")
    spared, difference = at.loc["loss spared"], at.loc["loss spared minus calls spared"]
    if spared["low"] >= rule["min_loss_spared"] and difference["low"] > 0:
        return Verdict(HOLDS, "at least half of the loss is spared, and more of it than of the substituted calls")
    if spared["high"] < rule["min_loss_spared"] or difference["high"] < 0:
        return Verdict(
            FAILS,
            "less than half of the loss is spared"
            if spared["high"] < rule["min_loss_spared"]
            else "less of the loss is spared than of the calls",
        )
    return Verdict(INCONCLUSIVE, "the intervals reach both sides of the bounds")


def judge_c2(table: pd.DataFrame, rules: Mapping[str, Any]) -> Verdict:
    """C2 from E2's statistics."""
    rule, own = rules["claims"]["C2"], table[table["claim"] == "C2"]
    at = own.set_index("statistic")
    if small := few_clusters(own, rules):
        return small
    least = float(own.loc[own["statistic"].str.startswith("r of mass without"), "estimate"].min())
    if at.loc["r of mass", "low"] >= rule["min_r"] and least >= rule["min_r_left_out"]:
        useful = float(at["low"]["r of mass minus |r| of share of calls"]) > 0
        return Verdict(HOLDS, "mass orders the policies" + ("" if useful else "; not clearly better than the share of substituted calls"))
    if at.loc["r of mass", "high"] < rule["min_r"]:
        return Verdict(FAILS, f"r stays below {rule['min_r']}")
    return Verdict(INCONCLUSIVE, f"the interval of r reaches below {rule['min_r']}, or r without one family below {rule['min_r_left_out']}")


def judge_c2a(table: pd.DataFrame, rules: Mapping[str, Any]) -> Verdict:
    """C2a from E2's statistics: the mean over policies of the rank correlation over inputs."""
    rule, own = rules["claims"]["C2a"], table[table["claim"] == "C2a"]
    row: Mapping[Any, Any] = own.set_index("statistic").loc["rho of inputs, mean of policies"].to_dict()
    if small := few_clusters(own, rules):
        return small
    if row["low"] > rule["largest_rho"]:
        return Verdict(FAILS, f"rho is clearly above {rule['largest_rho']}")
    if row["documents"] < rule["min_documents"]:
        return Verdict(INCONCLUSIVE, f"{int(row['documents'])} documents, {rule['min_documents']} are needed")
    if row["low"] > -rule["largest_rho"] and row["high"] < rule["largest_rho"]:
        return Verdict(HOLDS, f"rho lies within {rule['largest_rho']} of zero")
    return Verdict(INCONCLUSIVE, f"the interval of rho reaches beyond {rule['largest_rho']}")


def judge_c2b(table: pd.DataFrame, rules: Mapping[str, Any]) -> Verdict:
    """C2b from E2's statistics: policies that may replace the first choice."""
    rule, own = rules["claims"]["C2b"], table[table["claim"] == "C2b"]
    row: Mapping[Any, Any] = own.set_index("statistic").loc["r of mass"].to_dict()
    if small := few_clusters(own, rules):
        return small
    if row["policies"] >= rule["min_policies"] and row["high"] < rule["min_r"]:
        return Verdict(HOLDS, f"r stays below {rule['min_r']}")
    if row["low"] >= rule["min_r"]:
        return Verdict(FAILS, f"r is at least {rule['min_r']}: mass orders these policies, too")
    return Verdict(INCONCLUSIVE, f"the interval of r reaches both sides of {rule['min_r']}")


def judge_c4(table: pd.DataFrame, rules: Mapping[str, Any]) -> Verdict:
    """C4 from E4's statistics: (a) the effect, (b) its concentration after topic changes, for two base rules."""
    rule = rules["claims"]["C4"]
    if small := few_clusters(table, rules):
        return small
    if table["documents"].min() < rule["min_streams"]:
        return Verdict(INCONCLUSIVE, f"{int(table['documents'].min())} streams, {rule['min_streams']} are needed")
    wide = table.pivot(index="family", columns="part", values="low")
    if (table["p_holm"] < rule["alpha"]).any():
        return Verdict(HOLDS, "lower loss, most of it right after a topic change")
    for part, words in (
        ("a", "background admission raises the loss under both rules"),
        ("b", "the effect is weaker after a topic change under both rules"),
    ):
        if (wide[part] > 0).all():
            return Verdict(FAILS, words)
    return Verdict(INCONCLUSIVE, f"smallest corrected p of a rule's two parts: {table['p_holm'].min():.2g}, not below {rule['alpha']}")


def judge_c3(table: pd.DataFrame, rules: Mapping[str, Any]) -> Verdict:
    """C3 from Experiment B's registered decision; nothing but its primary verdict counts. Judged where that is decided, on its own page."""
    if small := few_clusters(table, rules):
        return small
    row = table.iloc[0]
    outcome = {"heavy_worse": HOLDS, "light_worse": FAILS, "equivalent": FAILS}.get(str(row["verdict"]), INCONCLUSIVE)
    return Verdict(outcome, str(row["reason"]) + ("" if row["status"] == "confirmatory" else f"; {row['status']}"))


JUDGES = {"C1": ("e1_statistics", judge_c1), "C2": ("e2_statistics", judge_c2), "C2a": ("e2_statistics", judge_c2a),
          "C2b": ("e2_statistics", judge_c2b), "C4": ("e4_statistics", judge_c4)}  # fmt: skip
