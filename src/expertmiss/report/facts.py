"""Look-ups that sections share: a measure of a policy at the capacity the text speaks of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from markupsafe import Markup

from expertmiss.figures.panels import headline
from expertmiss.figures.style import policy_order
from expertmiss.report.base import Page


class Facts:
    """Numbers of the page's tables at its headline capacity; every one asked for is recorded in ``numbers.tex``."""

    def __init__(self, page: Page) -> None:
        self.page = page
        summary = page.tables["summary"]
        self.capacity = headline(summary)
        self.residency = float(summary.loc[summary["capacity"] == self.capacity, "residency"].iloc[0])
        self.summary = summary[summary["capacity"] == self.capacity]
        differences = page.tables["differences"]
        self.differences = differences[differences["capacity"] == self.capacity]

    def policies(self) -> dict[str, Mapping[str, Any]]:
        """Configurations of the policies simulated at this capacity, by name; one that does not fit the table's miss rule is left out."""
        rules = self.summary.drop_duplicates("policy").set_index("policy")["miss_rule"]
        known = self.page.cfg["policies"]
        return {
            name: known[name] for name in policy_order(rules.index) if name in known and known[name]["miss_rule"]["name"] == rules[name]
        }

    def plain(self, rule: str) -> str | None:
        """The first policy of miss rule ``rule`` on an LRU cache without background loads or a cap on uploads; ``None`` if there is none."""
        return next(
            (
                name for name, policy in self.policies().items()
                if policy["miss_rule"]["name"] == rule and policy["eviction"]["name"] == "lru"
                and policy["admission"]["name"] != "background" and not policy.get("upload_cap")
            ),
            None,
        )  # fmt: skip

    def row(self, measure: str, policy: str) -> Mapping[str, Any]:
        """The statistics row of ``measure`` for ``policy``."""
        return _only(self.summary, measure, policy)

    def number(self, measure: str, policy: str) -> Markup:
        """The measure with its interval."""
        row = self.row(measure, policy)
        return self.page.numbers.estimate((measure, policy), row, row["unit"])

    def difference(self, measure: str, policy: str) -> tuple[Mapping[str, Any], Markup]:
        """Row and text of the paired difference, ``policy`` minus the reference."""
        row = _only(self.differences, measure, policy)
        return row, self.page.numbers.estimate((measure, policy, "minus", row["reference"]), row, row["unit"], signed=True)


def _only(frame: pd.DataFrame, measure: str, policy: str) -> Mapping[str, Any]:
    rows = frame[(frame["measure"] == measure) & (frame["policy"] == policy)].to_dict("records")
    assert len(rows) == 1, f"{len(rows)} rows of {measure} for {policy}"
    return {str(key): value for key, value in rows[0].items()}
