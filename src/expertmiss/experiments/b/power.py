"""How often the registered decision answers what, by simulation from the pilot's documents, and how many documents it needs.

A simulated study draws the pilot's sources with replacement within each domain, with their documents' differences and realised masses, until each domain
has the documents that it has in the study; differences are centred so that such studies have an assumed effect in the mean, also where the pilot holds
other shares of the domains. So the spread within and between sources and the failing share of the manipulation check are the pilot's, the shares of domains
the study's. A source with documents in two domains is drawn in each by itself. The decision function itself answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from expertmiss.errors import UserError


def quotas(available: Mapping[str, int], size: int) -> Counter[str]:
    """Documents of each domain among ``size`` that are taken as ``select_documents`` does: domains take turns as long as theirs last."""
    turns = [(turn, domain) for domain, count in available.items() for turn in range(count)]
    return Counter(domain for _, domain in sorted(turns)[:size])


def verdict_shares(
    decision: ModuleType, plan: Mapping[str, Any], pilot: pd.DataFrame, quota: Mapping[str, int], effect: float, simulations: int, seed: int
) -> dict[str, float]:
    """Share of simulated studies with each verdict.

    Args:
        plan: as the decision takes it, without ``documents``.
        pilot: columns source, domain, difference, mass_heavy, mass_light.
        quota: documents of the study by domain; each of them is in the pilot.
        effect: true mean difference.
    """
    draw = np.random.default_rng([seed, sum(quota.values())])
    masses = pilot[["mass_heavy", "mass_light"]].to_numpy()
    domains = sorted(quota)
    groups = [
        [np.flatnonzero((pilot["domain"] == domain) & (pilot["source"] == source)) for source in sorted(part["source"].unique())]
        for domain, part in ((domain, pilot[pilot["domain"] == domain]) for domain in domains)
    ]
    sizes = [quota[domain] for domain in domains]
    expected = np.average(pilot.groupby("domain")["difference"].mean()[domains], weights=sizes)
    centred = pilot["difference"].to_numpy() - expected + effect
    counted = dict.fromkeys(decision.VERDICTS, 0)
    for _ in range(simulations):
        places, source, domain = [], [], []
        for name, size, clusters in zip(domains, sizes, groups, strict=True):
            found = 0
            while found < size:
                chosen = clusters[draw.integers(len(clusters))][: size - found]
                places.append(chosen)
                source += [f"{name}{found}"] * len(chosen)
                domain += [name] * len(chosen)
                found += len(chosen)
        taken = np.concatenate(places)
        names = [str(index) for index in range(len(taken))]
        outcomes = {
            "document": names, "digest": names, "source": source, "domain": domain, "nll_heavy": centred[taken],
            "nll_light": np.zeros(len(taken)), "mass_heavy": masses[taken, 0], "mass_light": masses[taken, 1],
        }  # fmt: skip
        counted[decision.decide({**plan, "documents": dict(zip(names, names, strict=True))}, outcomes)["verdict"]] += 1
    return {name: count / simulations for name, count in counted.items()}


def find_size(
    decision: ModuleType,
    plan: Mapping[str, Any],
    rules_for: Callable[[Mapping[str, int]], Mapping[str, Any]],
    pilot: pd.DataFrame,
    available: Mapping[str, int],
) -> int:
    """The smallest of ``plan['sizes']`` with enough power for ``equivalent`` at 0 and ``heavy_worse`` at delta.

    Args:
        plan: the registered plan.
        rules_for: what the decision takes, given a study's documents by domain.
        available: documents that may enter, by domain of the pilot.

    Raises:
        UserError: no size that there are documents for suffices.
    """
    most, found, tried = sum(available.values()), [0.0, 0.0], 0
    for size in sorted(plan["sizes"]):
        if size > most:
            break
        tried, quota = size, quotas(available, size)
        rules = rules_for(quota)
        found = [
            verdict_shares(decision, rules, pilot, quota, effect, plan["simulations"], plan["seeds"]["power"])[verdict]
            for effect, verdict in ((0.0, "equivalent"), (rules["delta"], "heavy_worse"))
        ]
        if min(found) >= plan["power"]:
            return int(size)
    if not tried:
        raise UserError(
            f"Experiment B: there are {most} documents, fewer than the smallest size, {min(plan['sizes'])}; nothing can be locked"
        )
    raise UserError(
        f"Experiment B: {tried} of {most} documents give a power of {found[0]:.2f} (equivalent) and {found[1]:.2f} (heavy_worse), "
        f"{plan['power']} is needed; nothing can be locked"
    )


def power_table(
    decision: ModuleType, plan: Mapping[str, Any], rules: Mapping[str, Any], pilot: pd.DataFrame, quota: Mapping[str, int]
) -> pd.DataFrame:
    """Shares of verdicts by true effect in units of delta, of studies with ``quota`` documents: error rates and power."""
    rows = []
    for effect in (-1.0, 0.0, 0.5, 1.0, 2.0):
        shares = verdict_shares(decision, rules, pilot, quota, effect * rules["delta"], plan["simulations"], plan["seeds"]["power"])
        rows += [
            {"documents": sum(quota.values()), "effect": effect, "verdict": verdict, "share": share} for verdict, share in shares.items()
        ]
    return pd.DataFrame(rows).assign(simulations=plan["simulations"])
