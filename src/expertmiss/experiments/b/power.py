"""How often the registered decision answers what, by simulation from the pilot's documents, and how many documents it needs.

A simulated study draws the pilot's sources with replacement within each domain, with their documents' differences and realised masses, until each domain
has an equal share of n documents; differences are centred so that such studies have an assumed effect in the mean, also where the pilot holds more
documents of some domains. So the spread within and between sources, the domains and the failing
share of the manipulation check are the pilot's. The decision function itself answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from expertmiss.errors import UserError


def verdict_shares(
    decision: ModuleType, plan: Mapping[str, Any], pilot: pd.DataFrame, documents: int, effect: float, simulations: int, seed: int
) -> dict[str, float]:
    """Share of simulated studies of ``documents`` documents with each verdict.

    Args:
        plan: as the decision takes it, without ``documents``.
        pilot: columns source, domain, difference, mass_heavy, mass_light.
        effect: true mean difference.
    """
    draw = np.random.default_rng([seed, documents])
    masses = pilot[["mass_heavy", "mass_light"]].to_numpy()
    domains = sorted(pilot["domain"].unique())
    quota = [documents // len(domains) + (index < documents % len(domains)) for index in range(len(domains))]
    groups = [
        [np.flatnonzero((pilot["domain"] == domain) & (pilot["source"] == source)) for source in sorted(part["source"].unique())]
        for domain, part in pilot.groupby("domain", sort=True)
    ]
    expected = np.average(pilot.groupby("domain", sort=True)["difference"].mean(), weights=quota)
    centred = pilot["difference"].to_numpy() - expected + effect
    counted = dict.fromkeys(decision.VERDICTS, 0)
    for _ in range(simulations):
        places, source, domain = [], [], []
        for name, size, clusters in zip(domains, quota, groups, strict=True):
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


def find_size(decision: ModuleType, plan: Mapping[str, Any], rules: Mapping[str, Any], pilot: pd.DataFrame) -> int:
    """The smallest of ``plan['sizes']`` with enough power for ``equivalent`` at 0 and ``heavy_worse`` at delta.

    Args:
        plan: the registered plan.
        rules: as the decision takes them.

    Raises:
        UserError: no size suffices.
    """
    for size in plan["sizes"]:
        found = [
            verdict_shares(decision, rules, pilot, size, effect, plan["simulations"], plan["seeds"]["power"])[verdict]
            for effect, verdict in ((0.0, "equivalent"), (rules["delta"], "heavy_worse"))
        ]
        if min(found) >= plan["power"]:
            return int(size)
    raise UserError(
        f"Experiment B: {plan['sizes'][-1]} documents give a power of {found[0]:.2f} (equivalent) and {found[1]:.2f} (heavy_worse), "
        f"{plan['power']} is needed; nothing can be locked"
    )


def power_table(
    decision: ModuleType, plan: Mapping[str, Any], rules: Mapping[str, Any], pilot: pd.DataFrame, sizes: list[int]
) -> pd.DataFrame:
    """Shares of verdicts by size and by true effect in units of delta: error rates and power."""
    rows = []
    for size in sizes:
        for effect in (-1.0, 0.0, 0.5, 1.0, 2.0):
            shares = verdict_shares(decision, rules, pilot, size, effect * rules["delta"], plan["simulations"], plan["seeds"]["power"])
            rows += [{"documents": size, "effect": effect, "verdict": verdict, "share": share} for verdict, share in shares.items()]
    return pd.DataFrame(rows).assign(simulations=plan["simulations"])
