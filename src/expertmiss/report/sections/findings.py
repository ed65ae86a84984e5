"""Key findings: sentences whose numbers come from the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from expertmiss.figures.style import level
from expertmiss.report.base import Page, Section, render
from expertmiss.report.facts import Facts
from expertmiss.stats.measures import ALL, HEAVY


@dataclass(frozen=True)
class Finding:
    """A sentence, and ``yes`` or why its intervals decide nothing."""

    text: Markup
    reliable: str


def _render(page: Page) -> Markup:
    facts = Facts(page)
    found = [*_waiting(facts), *_light_misses(facts), *_first_choice(facts), *_caches(facts), *_weights(page), *_reuse(page)]
    return render("findings.html.j2", findings=found, sample=page.sample(), level=level(page.tables["summary"]))


def _waiting(facts: Facts) -> Iterator[Finding]:
    if facts.has("fetch_all"):
        text = Markup(
            "With {} resident experts per layer, waiting for every miss (<code>fetch_all</code>) finds {} of calls resident. "
            "The other {} wait for a fetch: {} experts loaded per token and layer."
        ).format(facts.capacity, *(facts.number(name, "fetch_all") for name in ("hit_rate", "miss_rate", "loads")))
        yield Finding(text, facts.row("hit_rate", "fetch_all")["reliable"])


def _light_misses(facts: Facts) -> Iterator[Finding]:
    if facts.has("rule_015", "substitute_all"):
        text = Markup(
            "Waiting only for the first choice and for gate weights of at least 0.15 (<code>rule_015</code>) substitutes {} of calls with a "
            "mean weight "
            "of {}. Substituting every miss (<code>substitute_all</code>) substitutes {} with a mean weight of {}. "
            "Substituted gate mass per token-layer: {} against {}."
        ).format(
            *(facts.number(name, policy) for policy in ("rule_015", "substitute_all") for name in ("substituted_share", "mass_per_substitution")),
            facts.number("mean_mass", "rule_015"), facts.number("mean_mass", "substitute_all"),
        )  # fmt: skip
        yield Finding(text, facts.row("mean_mass", "rule_015")["reliable"])


def _first_choice(facts: Facts) -> Iterator[Finding]:
    if facts.has("first_choice", "rule_015"):
        text = Markup(
            "Waiting for the first choice alone (<code>first_choice</code>) waits for {} of calls, the 0.15 rule for {}; "
            "the substituted gate mass is {} and {}."
        ).format(*(facts.number(name, policy) for name in ("fetched_share", "mean_mass") for policy in ("first_choice", "rule_015")))
        yield Finding(text, facts.row("mean_mass", "first_choice")["reliable"])


def _caches(facts: Facts) -> Iterator[Finding]:
    known = [policy for policy in ("quality_first", "speed_first") if policy in set(facts.differences["policy"])]
    if known:
        parts = []
        for policy in known:
            row, text = facts.difference("hit_rate", policy)
            parts.append(Markup("<code>{}</code> is {}, {}").format(policy, _direction(row), text))
        reference = facts.differences["reference"].iloc[0]
        text = Markup(
            "Hit rate of policies with frequency-based eviction and background loads, against <code>{}</code> on the same documents: {}."
        ).format(reference, Markup("; ").join(parts))
        yield Finding(text, row["reliable"])


def _direction(row: Mapping[str, Any]) -> str:
    if row["low"] > 0:
        return "higher"
    return "lower" if row["high"] < 0 else "not clearly different"


def _weights(page: Page) -> Iterator[Finding]:
    table = page.tables.get("gate_weight")
    if table is not None and table["rank"].max() >= 1:
        rows = [
            {str(key): value for key, value in row.items()} for row in table[table["domain"] == ALL].sort_values("rank").to_dict("records")
        ]
        first, last = rows[0], rows[-1]
        mean = [
            page.numbers.estimate(("gate_weight", f"rank {row['rank']}"), row, "weight", names=("mean", "low", "high"))
            for row in (first, last)
        ]
        heavy = [
            page.numbers.estimate(("heavy_share", f"rank {row['rank']}"), row, "share", names=("heavy_share", "heavy_low", "heavy_high"))
            for row in rows[1:2] + rows[-1:]
        ]
        text = Markup(
            "The router's first choice carries {} of the gate weight, the last of its {} choices {}. "
            "A weight of {} is reached by {} of second choices and {} of last choices."
        ).format(mean[0], len(rows), mean[1], HEAVY, *heavy)
        yield Finding(text, first["reliable"])


def _reuse(page: Page) -> Iterator[Finding]:
    table = page.tables.get("reuse")
    if table is not None:
        overall = table[table["domain"] == ALL]
        tokens, experts = (overall[overall["unit"] == unit].sort_values("distance") for unit in ("tokens", "experts"))
        soon = {str(key): value for key, value in tokens[tokens["distance"] == 1].to_dict("records")[0].items()}
        half = page.numbers.plain(("reuse", "median", "experts"), int(experts.loc[experts["share"] >= 0.5, "distance"].min()))
        text = Markup(
            "{} of reuses of an expert come with the very next token; half of all reuses have at most {} other experts in between. "
            "First uses within a document and layer are {} of requests."
        ).format(
            page.numbers.estimate(("reuse", "next token"), soon, "share", names=("share", "low", "high")), half,
            page.numbers.estimate(("cold_share",), soon, "share", names=("cold_share", "cold_low", "cold_high")),
        )  # fmt: skip
        yield Finding(text, soon["reliable"])


SECTION = Section("findings", "Key findings", 20, ("summary", "differences"), _render)
