"""The decision of Experiment B, as registered: a pure, total function of the registered plan and the documents' outcomes.

Self-contained (numpy, scipy), locked by its SHA-256 and loaded by path, so that what was registered is what decides. Whatever it is given,
it answers with a verdict and never raises.

Rows of the decision; the first that applies holds:

1. the plan or a number cannot be used, a registered document is missing, a document's content differs: ``no_verdict``
2. the manipulation check fails: ``no_verdict``
3. the 90 % interval of the effect lies inside +-delta: ``equivalent`` (``not_zero`` if the 95 % interval excludes 0)
4. the 95 % interval lies above 0: ``heavy_worse``
5. the 95 % interval lies below 0: ``light_worse``
6. else: ``inconclusive``
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import t as student

COLUMNS = ("document", "digest", "source", "domain", "nll_heavy", "nll_light", "mass_heavy", "mass_light")
VERDICTS = ("no_verdict", "equivalent", "heavy_worse", "light_worse", "inconclusive")


def decide(plan: Mapping[str, Any], outcomes: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict.

    Args:
        plan: ``documents`` (id to digest), ``mu``, ``delta``, ``mass_tolerance``, ``arms_tolerance``, ``documents_share``, ``confidence``,
            ``equivalence_confidence``.
        outcomes: equally long lists, one entry a document: ``document``, ``digest``, ``source``, ``domain``, ``nll_heavy`` and
            ``nll_light`` (mean NLL per scored token, nats), ``mass_heavy`` and ``mass_light`` (realised mean substituted mass per
            token-layer).

    Returns:
        ``verdict``, ``not_zero``, ``reason``; where they could be computed ``estimate``, ``low``, ``high``, ``low_equivalence``,
        ``high_equivalence``, ``documents``, ``sources``, ``share_passed``, ``mass_heavy``, ``mass_light``.
    """
    try:
        return _decide(plan, outcomes)
    except Exception as problem:  # total: an input of any kind is answered
        return _no_verdict(f"the plan or the outcomes cannot be used ({type(problem).__name__})")


def _no_verdict(reason: str, **found: Any) -> dict[str, Any]:
    return {"verdict": "no_verdict", "not_zero": False, "reason": reason, **found}


def _decide(plan: Mapping[str, Any], outcomes: Mapping[str, Any]) -> dict[str, Any]:
    registered = {str(name): str(digest) for name, digest in plan["documents"].items()}
    rules = {
        name: float(plan[name])
        for name in ("mu", "delta", "mass_tolerance", "arms_tolerance", "documents_share", "confidence", "equivalence_confidence")
    }
    if not all(np.isfinite(value) and value > 0 for value in rules.values()):
        return _no_verdict("a number of the plan is not positive and finite")
    if not max(rules["confidence"], rules["equivalence_confidence"]) < 1:
        return _no_verdict("a confidence of the plan is not below 1")
    names = [str(name) for name in outcomes["document"]]
    if any(len(outcomes[column]) != len(names) for column in COLUMNS):
        return _no_verdict("the columns of the outcomes differ in length")
    if len(set(names)) < len(names):
        return _no_verdict("a document stands twice")
    if missing := sorted(set(registered) - set(names)):
        return _no_verdict(f"document {missing[0]} is missing ({len(missing)} in all)")
    if foreign := sorted(set(names) - set(registered)):
        return _no_verdict(f"document {foreign[0]} is not registered ({len(foreign)} in all)")
    if changed := sorted(name for name, digest in zip(names, outcomes["digest"], strict=True) if registered[name] != str(digest)):
        return _no_verdict(f"document {changed[0]} differs from the registered one ({len(changed)} in all)")
    heavy, light, mass_heavy, mass_light = (np.asarray(outcomes[column], dtype=np.float64) for column in COLUMNS[4:])
    if not all(np.isfinite(values).all() for values in (heavy, light, mass_heavy, mass_light)):
        return _no_verdict("an outcome is not a finite number")
    passed = check(mass_heavy, mass_light, rules["mu"], rules["mass_tolerance"], rules["arms_tolerance"])
    found: dict[str, Any] = {
        "documents": len(names), "share_passed": float(passed.mean()), "mass_heavy": float(mass_heavy.mean()),
        "mass_light": float(mass_light.mean()),
    }  # fmt: skip
    sources, domains = np.asarray(outcomes["source"], dtype=str), np.asarray(outcomes["domain"], dtype=str)
    estimate, error, freedom = clustered_mean(heavy - light, sources, domains)
    found |= {"estimate": estimate, "sources": len(np.unique(sources))}
    if freedom < 1:
        return _no_verdict("too few sources for an interval", **found)
    low, high = bounds(estimate, error, freedom, rules["confidence"])
    inner_low, inner_high = bounds(estimate, error, freedom, rules["equivalence_confidence"])
    found |= {"low": low, "high": high, "low_equivalence": inner_low, "high_equivalence": inner_high}
    if found["share_passed"] < rules["documents_share"]:
        return _no_verdict("the manipulation check fails: too few documents realise the target mass in both arms alike", **found)
    not_zero = low > 0 or high < 0
    if -rules["delta"] < inner_low and inner_high < rules["delta"]:
        words = "the effect is smaller than delta" + (", though not zero" if not_zero else "")
        return {"verdict": "equivalent", "not_zero": not_zero, "reason": words, **found}
    if low > 0:
        return {"verdict": "heavy_worse", "not_zero": True, "reason": "few heavy substitutions cost more than many light ones", **found}
    if high < 0:
        return {"verdict": "light_worse", "not_zero": True, "reason": "many light substitutions cost more than few heavy ones", **found}
    return {"verdict": "inconclusive", "not_zero": False, "reason": "the interval holds 0 and reaches beyond delta", **found}


def check(mass_heavy: Any, mass_light: Any, mu: float, mass_tolerance: float, arms_tolerance: float) -> Any:
    """[N] which documents pass the manipulation check: each arm within +-``mass_tolerance`` of ``mu``, the arms within ``arms_tolerance`` of each other.

    The arms' distance is relative to their mean.
    """
    near = (np.abs(mass_heavy - mu) <= mass_tolerance * mu) & (np.abs(mass_light - mu) <= mass_tolerance * mu)
    return near & (np.abs(mass_heavy - mass_light) <= arms_tolerance * (mass_heavy + mass_light) / 2)


def clustered_mean(values: Any, sources: Any, domains: Any) -> tuple[float, float, int]:
    """Mean over documents, its standard error over sources, and the degrees of freedom.

    Domains are strata: residuals are taken from their domain's mean. Sources (packages, templates) are the clusters, also across domains: the
    variance is G / (G - H) times the sum over the G sources of their squared residual totals, over N squared, with H domains and G - H
    degrees of freedom.
    """
    values = np.asarray(values, dtype=np.float64)
    _, stratum = np.unique(domains, return_inverse=True)
    _, cluster = np.unique(sources, return_inverse=True)
    residual = values - (np.bincount(stratum, weights=values) / np.bincount(stratum))[stratum]
    total = np.bincount(cluster, weights=residual)
    freedom = len(total) - int(stratum.max()) - 1
    if freedom < 1:
        return float(values.mean()), float("nan"), freedom
    variance = len(total) / freedom * float((total**2).sum())
    return float(values.mean()), float(np.sqrt(variance)) / len(values), freedom


def bounds(estimate: float, error: float, freedom: int, confidence: float) -> tuple[float, float]:
    """Two-sided Student interval."""
    half = error * float(student.ppf((1 + confidence) / 2, freedom))
    return estimate - half, estimate + half
