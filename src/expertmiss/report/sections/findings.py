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

FREQUENCY = ("lfu", "lfru")


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
    if lossless := facts.plain("fetch_all"):
        text = Markup(
            "With {} resident experts per layer, waiting for every miss (<code>{}</code>) finds {} of calls resident. "
            "The other {} wait for a fetch: {} experts loaded per token and layer."
        ).format(facts.capacity, lossless, *(facts.number(name, lossless) for name in ("hit_rate", "miss_rate", "loads")))
        yield Finding(text, facts.row("hit_rate", lossless)["reliable"])


def _light_misses(facts: Facts) -> Iterator[Finding]:
    rule, everything = facts.plain("threshold"), facts.plain("substitute_all")
    if rule and everything:
        text = Markup(
            "Waiting only for the first choice and for gate weights of at least {} (<code>{}</code>) substitutes {} of calls with a "
            "mean weight "
            "of {}. Substituting every miss (<code>{}</code>) substitutes {} with a mean weight of {}. "
            "Substituted gate mass per token-layer: {} against {}."
        ).format(
            _tau(facts, rule), rule, *(facts.number(name, rule) for name in ("substituted_share", "mass_per_substitution")),
            everything, *(facts.number(name, everything) for name in ("substituted_share", "mass_per_substitution")),
            facts.number("mean_mass", rule), facts.number("mean_mass", everything),
        )  # fmt: skip
        yield Finding(text, facts.row("mean_mass", rule)["reliable"])


def _first_choice(facts: Facts) -> Iterator[Finding]:
    first, rule = facts.plain("first_choice"), facts.plain("threshold")
    if first and rule:
        text = Markup(
            "Waiting for the first choice alone (<code>{}</code>) waits for {} of calls, the {} rule (<code>{}</code>) for {}; "
            "the substituted gate mass is {} and {}."
        ).format(
            first, facts.number("fetched_share", first), _tau(facts, rule), rule, facts.number("fetched_share", rule),
            facts.number("mean_mass", first), facts.number("mean_mass", rule),
        )  # fmt: skip
        yield Finding(text, facts.row("mean_mass", first)["reliable"])


def _tau(facts: Facts, policy: str) -> str:
    return facts.page.numbers.plain(("tau", policy), float(facts.policies()[policy]["miss_rule"]["tau"]))


def _caches(facts: Facts) -> Iterator[Finding]:
    compared = set(facts.differences["policy"])
    known = [
        name for name, policy in facts.policies().items()
        if name in compared and policy["eviction"]["name"] in FREQUENCY and policy["admission"]["name"] == "background"
    ]  # fmt: skip
    if known:
        parts, verdicts = [], []
        for policy in known:
            row, text = facts.difference("hit_rate", policy)
            verdicts.append(str(row["reliable"]))
            parts.append(Markup("<code>{}</code> is {}, {}").format(policy, _direction(row), text))
        reference = facts.differences["reference"].iloc[0]
        text = Markup(
            "Hit rate of policies with frequency-based eviction and background loads, against <code>{}</code> on the same documents: {}."
        ).format(reference, Markup("; ").join(parts))
        yield Finding(text, next((verdict for verdict in verdicts if verdict != "yes"), "yes"))


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
