"""Accuracy of answers, with Wilson intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from scipy.stats import binomtest

from expertmiss.generate.solve import Row
from expertmiss.generate.tasks import TASKS

CONFIDENCE = 0.95


def wilson(correct: int, n: int) -> dict[str, Any]:
    """Share of ``correct`` among ``n`` > 0 with Wilson's 95 % interval, as if problems were independent."""
    interval = binomtest(correct, n).proportion_ci(CONFIDENCE, method="wilson")
    return {"correct": correct, "n": n, "accuracy": correct / n, "interval": [float(interval.low), float(interval.high)]}


def accuracies(rows: Sequence[Row], caps: dict[str, int], sandbox: str) -> dict[str, dict[str, Any]]:
    """Per task: accuracy by scoring rule (the primary one first), truncated answers, answers without a marker, the sandbox, and
    (correct, n) by source. ``sandbox`` says which one scored, or why none did; then functions have no ``by_rule``."""
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(row["task"] for row in rows):
        task, mine = TASKS[name], [row for row in rows if row["task"] == name]
        entry: dict[str, Any] = {
            "n": len(mine), "templates": len({row["source"] for row in mine}), "token_cap": caps[name], "primary": task.primary,
            "truncated": sum(row["finish"] == "cap" for row in mine), "by_rule": {},
        }  # fmt: skip
        if task.scoring == "tests":
            entry |= {"sandbox": sandbox, "statuses": dict(sorted(Counter(row["status"] for row in mine if row["status"]).items()))}
        else:
            entry["unmarked"] = sum(row["answers"][task.primary] is None for row in mine)
        for rule in sorted(mine[0]["correct"], key=lambda rule: rule != task.primary):
            right = [row["correct"][rule] for row in mine]
            if None not in right:
                entry["by_rule"][rule] = wilson(sum(right), len(right))
        if task.primary in entry["by_rule"]:
            sources = sorted({row["source"] for row in mine})
            scored = {source: [row["correct"][task.primary] for row in mine if row["source"] == source] for source in sources}
            entry["by_source"] = {source: [sum(values), len(values)] for source, values in scored.items()}
        found[name] = entry
    return found
