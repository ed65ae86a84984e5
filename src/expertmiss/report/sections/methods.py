"""Definitions in short, how intervals are made, and what is not claimed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from expertmiss.figures.style import policy_order
from expertmiss.report.base import Page, Section, render
from expertmiss.stats.measures import MEASURES

_INITIAL = {
    "warm": "the same warm cache: the experts that the calibration split requests most",
    "cold": "an empty cache",
    "random": "a cache of experts drawn at random by the seed",
}


def _starts(policies: Mapping[str, Mapping[str, Any]]) -> Iterator[Markup]:
    """One sentence for each way in which caches begin; policies are named where they differ."""
    ways: dict[tuple[str, str], list[str]] = {}
    for name in policy_order(policies):
        ways.setdefault((policies[name].get("state", "reset"), policies[name].get("initial", "warm")), []).append(name)
    for (state, initial), names in ways.items():
        who = Markup(" under {}").format(_names(names)) if len(ways) > 1 else Markup("")
        if state == "reset":
            yield Markup("Every document starts from {}{}.").format(_INITIAL[initial], who)
        else:
            yield Markup(
                "State is carried over documents{}: the first starts from {}, every other from what the one before it left."
            ).format(who, _INITIAL[initial])


def _names(names: list[str]) -> Markup:
    return Markup(", ").join(Markup("<code>{}</code>").format(name) for name in names)


def _render(page: Page) -> Markup:
    summary = page.tables["summary"]
    policies = {name: policy for name, policy in page.cfg["policies"].items() if name in set(summary["policy"])}
    carried = [name for name in policy_order(policies) if policies[name].get("state") == "carry"]
    pooled = [name for name in policy_order(policies) if policies[name].get("scope") == "global"]
    open_loop = any("open loop" in note for note in page.labels.notes)
    return render(
        "methods.html.j2",
        measures=list(MEASURES.values()),
        stats=page.cfg["stats"],
        labels=page.labels,
        model=page.cfg["model"],
        sources="sources (packages or templates)" if page.cfg["corpus"].get("kind", "builtin") == "builtin" else "sources",
        starts=list(_starts(policies)),
        carried=_names(carried),
        pooled=_names(pooled),
        open_loop=open_loop,
        emulated=[study.upper() for study in ("e1", "e2", "e4", "e5") if f"{study}_measures" in page.tables],
    )


SECTION = Section("methods", "Methods and limits", 80, ("summary",), _render)
