"""The policies: what each does at a miss, and its measures at one capacity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from expertmiss.figures.style import policy_order
from expertmiss.report.base import Page, Section, render
from expertmiss.report.facts import Facts
from expertmiss.report.numbers import SPACE
from expertmiss.report.shown import by_measure

_RULES = {
    "fetch_all": "waits for every miss",
    "substitute_all": "waits for none; substitutes every miss",
    "first_choice": "waits for the router's first choice; substitutes the rest",
    "threshold": "waits for the first choice and for gate weights ≥ {tau}; substitutes the rest",
    "cumulative": "waits while better-ranked calls weigh ≤ {T1} together; drops above {T2}; substitutes between",
    "score_margin": "waits for scores {alpha} above the next candidate; substitutes near-ties",
    "cache_prior": "re-routes towards residents (lambda {lambda}, first {J} ranks kept)",
    "max_rank": "re-routes to residents of rank below {M} (first {J} ranks kept)",
    "drop_cold": "waits for the first choice and for gate weights ≥ {F}/K; drops the rest",
}
_EVICTIONS = {
    "lru": "least recently used",
    "fifo": "first in, first out",
    "lfu": "least frequently used",
    "lfru": "least frequent per age",
    "opt": "optimal (Belady)",
}
_ADMISSIONS = {
    "fetched_only": "what is fetched",
    "every_miss": "every substituted expert, at the next token",
    "background": "experts substituted often",
}


def describe(policy: Mapping[str, Any]) -> tuple[str, str, str]:
    """Miss rule, eviction and admission of a policy's configuration, in words."""
    rule, eviction, admission = policy["miss_rule"], policy["eviction"], policy["admission"]
    words = _RULES[rule["name"]].format_map({"F": "F", **rule})
    evicts = _EVICTIONS[eviction["name"]] + (f" ({eviction['variant'].replace('_', ' ')})" if eviction.get("variant") else "")
    admits = _ADMISSIONS[admission["name"]]
    return words, evicts, admits + (f" (mass ≥ {admission['beta']:g})" if isinstance(admission.get("beta"), float | int) else "")


def _render(page: Page) -> Markup:
    facts = Facts(page)
    at = f"C = {facts.capacity} resident experts per layer ({100 * facts.residency:g}{SPACE}%)"
    known = page.cfg["policies"]
    described = [(name, *describe(known[name])) for name in policy_order(facts.summary["policy"]) if name in known]
    measures = ("hit_rate", "fetched_share", "substituted_share", "mean_mass", "agreement", "kl", "loads")
    dropped = facts.summary.loc[facts.summary["measure"] == "dropped_share", "estimate"].max() > 0
    shown = by_measure(
        "policies",
        f"Policies at {at}. Mass, KL and loads are means per token-layer.",
        facts.summary,
        (*measures[:3], "dropped_share", *measures[3:]) if dropped else measures,
    )
    tables = [page.export(shown)]
    if len(facts.differences):
        reference = facts.differences["reference"].iloc[0]
        title = f"Paired differences from {reference} on the same documents, at {at}."
        tables.append(
            page.export(
                by_measure("differences", title, facts.differences, ("hit_rate", "fetched_share", "agreement", "kl", "loads"), signed=True)
            )
        )
    few = bool((facts.summary["reliable"] != "yes").any())
    return render("policies.html.j2", described=described, tables=tables, at=at, few=few)


SECTION = Section("policies", "Policies", 30, ("summary", "differences"), _render)
