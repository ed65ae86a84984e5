"""The decisions of the generation test, as registered: a pure, total function of the registered plan and the measured statistics.

Self-contained, locked by its SHA-256 and loaded by path, so that what was registered is what decides. Whatever it is given, it answers every prediction
with ``held``, ``failed`` or ``undecided`` and a reason, and never raises.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

OUTCOMES = ("held", "failed", "undecided")
STATISTICS = {
    "not_worse": "accuracy difference", "worse": "accuracy difference", "more_agreement": "agreement difference",
    "mass_orders_arms": "concordant pairs", "mass_blind": "AUC of mass",
}  # fmt: skip
"""Rule to the statistic that it judges."""


def decide(plan: Mapping[str, Any], statistics: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The outcome of every prediction, in the plan's order.

    Args:
        plan: ``rules`` and ``predictions``.
        statistics: rows with ``task``, ``statistic``, ``arm`` and ``against`` (empty where there is none), ``estimate``, ``low``, ``high``,
            ``problems``, ``templates``, and for the AUC ``flips``. The reference's accuracy is the row of statistic ``accuracy``.

    Returns:
        a row a prediction: ``id``, ``outcome``, ``why`` and, where it was measured, ``estimate``, ``low``, ``high``. A plan without a list of
        predictions has none.
    """
    try:
        predictions = list(plan["predictions"])
    except Exception:  # total: an input of any kind is answered
        return []
    found = []
    for place, prediction in enumerate(predictions):
        name = str(prediction.get("id", place)) if isinstance(prediction, Mapping) else str(place)
        try:
            found.append({"id": name, **_decide(plan["rules"], prediction, statistics)})
        except Exception as problem:
            found.append(
                {"id": name, "outcome": "undecided", "why": f"the plan or the statistics cannot be used ({type(problem).__name__})"}
            )
    return found


def _decide(rules: Mapping[str, Any], prediction: Mapping[str, Any], statistics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    rule, task = prediction["rule"], prediction["task"]
    row = _row(statistics, task, STATISTICS[rule], prediction.get("arm", ""), prediction.get("against", ""))
    if row is None:
        return {"outcome": "undecided", "why": "not measured"}
    low, high, estimate = (float(row[name]) for name in ("low", "high", "estimate"))
    shown = {"estimate": estimate, "low": low, "high": high}
    if not all(map(math.isfinite, (low, high, estimate))):
        return {"outcome": "undecided", "why": "the interval is not defined", **shown}
    for unit in ("problems", "templates"):
        if not row[unit] >= rules[f"min_{unit}"]:
            return {"outcome": "undecided", "why": f"{row[unit]:.0f} {unit}, {rules[f'min_{unit}']} are needed", **shown}
    if rule in ("not_worse", "worse"):
        reference = _row(statistics, task, "accuracy", "", "")
        if reference is None or not float(reference["low"]) >= rules["least_accuracy"]:
            return {"outcome": "undecided", "why": f"the reference is not clearly above {rules['least_accuracy']:.0%}", **shown}
    if rule == "mass_blind" and not row["flips"] >= rules["min_flips"]:
        return {"outcome": "undecided", "why": f"{row['flips']:.0f} flips, {rules['min_flips']} are needed", **shown}
    held, failed = _reached(rule, low, high, rules)
    if held:
        return {"outcome": "held", "why": "the whole interval lies where it was predicted", **shown}
    if failed:
        return {"outcome": "failed", "why": "the whole interval lies outside of what was predicted", **shown}
    return {"outcome": "undecided", "why": "the interval reaches both sides of a bound", **shown}


def _reached(rule: str, low: float, high: float, rules: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether the rule for ``held`` and the rule for ``failed`` are met; ``held`` goes first."""
    margin, band, share = float(rules["margin"]), float(rules["auc_band"]), float(rules["concordant"])
    if rule == "not_worse":
        return low > -margin, high < -margin
    if rule == "worse":
        return high < 0, low > -margin
    if rule == "more_agreement":
        return low > 0, high < 0
    if rule == "mass_orders_arms":
        return low >= share, high < share
    return 0.5 - band < low and high < 0.5 + band, low > 0.5 + band or high < 0.5 - band


def _row(statistics: Sequence[Mapping[str, Any]], task: str, statistic: str, arm: str, against: str) -> Mapping[str, Any] | None:
    """The one row that measures it; None where there is none or more than one."""
    wanted = (task, statistic, arm, against)
    found = [row for row in statistics if (row["task"], row["statistic"], row["arm"], row["against"]) == wanted]
    return found[0] if len(found) == 1 else None
