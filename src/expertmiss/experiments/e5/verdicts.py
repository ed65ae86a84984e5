"""The rules of ``prereg/e5.yaml`` as pure functions of E5's statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from expertmiss.experiments.verdicts import FAILS, HOLDS, INCONCLUSIVE, NOT_TESTABLE, Verdict

FAST = ("quality_first", "speed_first")


def few_units(table: pd.DataFrame, rules: Mapping[str, Any]) -> Verdict | None:
    """The verdict when quality has too few sources, or time too few (stream, repeat) pairs; ``None`` when there are enough."""
    for kind, needed, unit in (("quality", rules["min_clusters"], "sources"), ("time", rules["min_pairs"], "(stream, repeat) pairs")):
        own = table.loc[table["kind"] == kind, "clusters"]
        if len(own) and own.min() < needed:
            return Verdict(INCONCLUSIVE, f"{int(own.min())} {unit}, {needed} are needed")
    return None


def judge_c5(table: pd.DataFrame, rules: Mapping[str, Any]) -> Verdict:
    """C5: both policies faster than fetch_all by the least ratio, at no more than a share of substitute_all's loss."""
    rule, at = rules["claims"]["C5"], table.set_index("statistic")
    if not bool(table["trained"].all()):
        return Verdict(NOT_TESTABLE, "a model of random weights has no quality")
    if small := few_units(table, rules):
        return small
    everything = at.loc["D of substitute_all"]
    for name in FAST:
        if at.loc[f"ratio of {name}", "high"] < rule["min_ratio"]:
            return Verdict(FAILS, f"{name} is less than {rule['min_ratio']:g} times as fast as fetch_all")
        if at.loc[f"D of {name}", "low"] > rule["max_share"] * everything["high"]:
            return Verdict(FAILS, f"{name} loses more than {rule['max_share']:g} of what substitute_all loses")
    slow = [name for name in FAST if not at.loc[f"ratio of {name}", "low"] > rule["min_ratio"]]
    lossy = [name for name in FAST if not at.loc[f"D of {name}", "high"] <= rule["max_share"] * everything["low"]]
    if not slow and not lossy:
        return Verdict(
            HOLDS, f"both are more than {rule['min_ratio']:g} times as fast, at most {rule['max_share']:g} of substitute_all's loss"
        )
    words = [f"the ratio of {' and '.join(slow)} reaches below {rule['min_ratio']:g}"] if slow else []
    words += [f"the loss of {' and '.join(lossy)} may exceed {rule['max_share']:g} of substitute_all's"] if lossy else []
    return Verdict(INCONCLUSIVE, "; ".join(words))


def judge_c5a(table: pd.DataFrame, rules: Mapping[str, Any]) -> Verdict:
    """C5a: quality_first against the 0.15 rule."""
    rule, at = rules["claims"]["C5a"], table.set_index("statistic")
    if small := few_units(table, rules):
        return small
    loss, ratio = at.loc["NLL difference"], at.loc["time ratio"]
    if loss["low"] >= 0:
        return Verdict(FAILS, "the loss is not lower")
    if loss["high"] < 0 and ratio["high"] < rule["max_time_ratio"]:
        return Verdict(HOLDS, f"lower loss, in less than {rule['max_time_ratio']:g} times the time")
    if loss["high"] >= 0:
        return Verdict(INCONCLUSIVE, "the interval of the NLL difference reaches both sides of zero")
    return Verdict(INCONCLUSIVE, f"lower loss, but the time ratio may be {rule['max_time_ratio']:g} or more")


def judge_c5b(table: pd.DataFrame, rules: Mapping[str, Any]) -> Verdict:
    """C5b: speed_first against the 0.15 rule; its loss is held against a margin (non-inferiority)."""
    rule, at = rules["claims"]["C5b"], table.set_index("statistic")
    if small := few_units(table, rules):
        return small
    rise, ratio = at.loc["perplexity rise"], at.loc["time ratio"]
    if ratio["low"] >= 1:
        return Verdict(FAILS, "it saves no time")
    if rise["low"] > rule["max_rise"]:
        return Verdict(FAILS, f"perplexity rises by more than {100 * rule['max_rise']:g} %")
    if ratio["high"] < 1 and rise["high"] < rule["max_rise"]:
        return Verdict(HOLDS, f"less time, and perplexity rises by less than {100 * rule['max_rise']:g} %")
    words = ["the time ratio's interval holds 1"] if ratio["high"] >= 1 else []
    words += [f"perplexity may rise by {100 * rule['max_rise']:g} % or more"] if rise["high"] >= rule["max_rise"] else []
    return Verdict(INCONCLUSIVE, "; ".join(words))


def judge_c2_engine(table: pd.DataFrame, rules: Mapping[str, Any]) -> Verdict:
    """C2 on the engine: mass orders the protected policies by their loss."""
    rule, at = rules["claims"]["C2 (engine)"], table.set_index("statistic")
    if small := few_units(table, rules):
        return small
    left_out = table.loc[table["statistic"].str.startswith("r of mass without"), "estimate"]
    r: Mapping[Any, Any] = at.loc["r of mass"].to_dict()
    if r["policies"] < rule["min_policies"] or len(left_out) < rule["min_families"]:
        return Verdict(
            INCONCLUSIVE,
            f"{int(r['policies'])} policies of {len(left_out)} families, {rule['min_policies']} of {rule['min_families']} are needed",
        )
    if r["low"] >= rule["min_r"] and left_out.min() >= rule["min_r_left_out"]:
        return Verdict(HOLDS, "mass orders the policies")
    if r["high"] < rule["min_r"]:
        return Verdict(FAILS, f"r stays below {rule['min_r']}")
    return Verdict(INCONCLUSIVE, f"the interval of r reaches below {rule['min_r']}, or r without one family below {rule['min_r_left_out']}")


JUDGES: dict[str, Callable[[pd.DataFrame, Mapping[str, Any]], Verdict]] = {
    "C5": judge_c5, "C5a": judge_c5a, "C5b": judge_c5b, "C2 (engine)": judge_c2_engine,
}  # fmt: skip
