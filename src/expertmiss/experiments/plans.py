"""Which policies an emulated experiment runs: its rows, in order; the reference (``fetch_all``) is the first.

E1: miss rules at several capacities, weight conventions, choosers. E2: the fixed sets of ``config/claims.yaml``. E4: base rules by
eviction by admission. Every row says what it is for (``arm``), so that the statistics never read a policy's name.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from expertmiss.emulate.rows import Row
from expertmiss.errors import UserError
from expertmiss.simulate.capacity import holds_a_token, resident_experts

LRU = {"name": "lru"}
HALF_LIFE = {"name": "lfu", "variant": "half_life"}
EVERY_MISS = {"name": "every_miss"}
FETCHED_ONLY = {"name": "fetched_only"}
REFERENCE = "fetch_all"


@dataclass(frozen=True)
class Planned:
    """A row of an experiment.

    Attributes:
        row: policy, capacity, seed.
        residency: the share that the capacity was made from.
        arm: what the row is for, e.g. ``grid``, ``convention``, ``chooser``, ``protected``, ``unprotected``, ``reference``.
        family: group within the arm: E2's family, E4's base rule.
        few_residents: C < 2K, where a substitute is hard to find: shown, never ranked.
    """

    row: Row
    residency: float
    arm: str
    family: str
    few_residents: bool


def load_claims(path: Path) -> dict[str, Any]:
    """``config/claims.yaml`` as a plain dict.

    Raises:
        UserError: missing, or not a mapping with ``policies`` and ``claims``.
    """
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; restore it (git checkout {path})") from None
    except yaml.YAMLError as problem:
        raise UserError(f"{path}: not YAML ({str(problem).splitlines()[0]}); restore the file") from None
    if not isinstance(found, dict) or not {"policies", "claims"} <= set(found):
        raise UserError(f"{path}: lacks 'policies' or 'claims'; restore the file")
    return found


def plan(study: str, options: Mapping[str, Any], claims: Mapping[str, Any], experts: int, top_k: int) -> list[Planned]:
    """Rows of ``study`` (``e1``, ``e2`` or ``e4``) for a model with ``experts`` experts a layer and ``top_k`` of them a token.

    Args:
        options: the section of the configuration with the study's name.
        claims: :func:`load_claims`.

    Raises:
        UserError: no such study, a residency with C < K.
    """
    makers = {"e1": _e1, "e2": _e2, "e4": _e4}
    if study not in makers:
        raise UserError(f"emulate_policies: no study '{study}'; known: {', '.join(makers)}")
    rows = list(makers[study](options, claims, experts, top_k))
    names = [(item.row.name, item.row.capacity, item.row.seed) for item in rows]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{study}: policy '{twice[0]}' stands twice at C = {twice[1]}; give every value of an option once")
    return rows


def policy(name: str, rule: Mapping[str, Any], eviction: Mapping[str, Any], admission: Mapping[str, Any], **others: Any) -> dict[str, Any]:
    """A policy in the core's form."""
    return {"name": name, "miss_rule": dict(rule), "eviction": dict(eviction), "admission": dict(admission), **copy.deepcopy(others)}


def scaled_tau(top_k: int) -> float:
    """The threshold that stands to K as the paper's 0.15 to its K = 10: 1.5 / K."""
    return 1.5 / top_k


def _planned(made: dict[str, Any], residency: float, arm: str, family: str, experts: int, top_k: int, seed: int = 0) -> Planned:
    capacity = resident_experts(residency, experts, top_k, "claims.residency")
    return Planned(Row(made["name"], made, capacity, seed), residency, arm, family, capacity < 2 * top_k)


def _e1(options: Mapping[str, Any], claims: Mapping[str, Any], experts: int, top_k: int) -> Iterator[Planned]:
    headline = claims["claims"]["C1"]["residency"]
    # A share of fewer than K experts cannot hold a token's own; it is left out, the claims' share never.
    kept = [share for share in options["residency"] if holds_a_token(share, experts, top_k)]
    shares = sorted({*kept, headline}, key=lambda share: (share != headline, share))
    taus = sorted({*options["taus"], 0.15, scaled_tau(top_k)})
    for share in shares:
        yield _planned(policy(REFERENCE, {"name": "fetch_all"}, LRU, FETCHED_ONLY), share, "reference", "fetch_all", experts, top_k)
        for rule in ("substitute_all", "first_choice"):
            yield _planned(policy(rule, {"name": rule}, LRU, EVERY_MISS), share, "grid", rule, experts, top_k)
        for tau in taus:
            made = policy(tau_name(tau), {"name": "threshold", "tau": tau}, LRU, EVERY_MISS)
            yield _planned(made, share, "grid", "threshold", experts, top_k)
    bases: dict[str, dict[str, Any]] = {"substitute_all": {"name": "substitute_all"}, "threshold_0.15": {"name": "threshold", "tau": 0.15}}
    for name, base in bases.items():
        for convention in options["conventions"]:
            weights = {"name": "scaled", "a": options["scaled_a"]} if convention == "scaled" else {"name": convention}
            made = policy(f"{name}/{convention}", base, LRU, EVERY_MISS, weights=weights)
            yield _planned(made, headline, "convention", name, experts, top_k)
        for chooser in options["choosers"]:
            for seed in options["chooser_seeds"]:
                chosen = {"name": chooser, **({"margin": options["margin"]} if chooser == "matched_random" else {})}
                made = policy(f"{name}/{chooser}", base, LRU, EVERY_MISS, chooser=chosen)
                yield _planned(made, headline, "chooser", name, experts, top_k, seed)


def tau_name(tau: float) -> str:
    """Name of E1's threshold rows."""
    return f"threshold_{tau:g}"


def _e2(options: Mapping[str, Any], claims: Mapping[str, Any], experts: int, top_k: int) -> Iterator[Planned]:
    share = claims["claims"]["C2"]["residency"]
    yield _planned(policy(REFERENCE, {"name": "fetch_all"}, LRU, FETCHED_ONLY), share, "reference", "fetch_all", experts, top_k)
    for family, members in claims["policies"]["C2"].items():
        for name, parts in members.items():
            yield _planned({"name": name, **copy.deepcopy(parts)}, share, "protected", family, experts, top_k)
    for name, parts in claims["policies"]["C2b"].items():
        yield _planned({"name": name, **copy.deepcopy(parts)}, share, "unprotected", parts["miss_rule"]["name"], experts, top_k)


def _e4(options: Mapping[str, Any], claims: Mapping[str, Any], experts: int, top_k: int) -> Iterator[Planned]:
    claim = claims["claims"]["C4"]
    share = claim["residency"]
    betas = sorted({*(float(beta) for beta in options["betas"]), float(claim["beta"])})
    yield _planned(policy(REFERENCE, {"name": "fetch_all"}, LRU, FETCHED_ONLY), share, "reference", "fetch_all", experts, top_k)
    for base, rule in claims["policies"]["C4"].items():
        for eviction_name, eviction in (("lru", LRU), ("lfu", HALF_LIFE)):
            made = policy(f"{base}/{eviction_name}/fetched_only", rule, eviction, FETCHED_ONLY)
            yield _planned(made, share, "fetched_only", f"{base}/{eviction_name}", experts, top_k)
            for beta in betas:
                admission = {"name": "background", "beta": beta, "delay": claim["delay"]}
                made = policy(f"{base}/{eviction_name}/background_{beta:g}", rule, eviction, admission)
                yield _planned(made, share, "background", f"{base}/{eviction_name}", experts, top_k)
        for delay in options["delays"]:
            admission = {"name": "background", "beta": claim["beta"], "delay": delay}
            made = policy(f"{base}/lfu/background_{claim['beta']:g}_delay_{delay}", rule, HALF_LIFE, admission)
            yield _planned(made, share, "delay", f"{base}/lfu", experts, top_k)
