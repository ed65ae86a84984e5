"""Weight classes, their supply, and the mass levels that an arm can be held to: all from the pilot's reference run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from expertmiss.errors import UserError
from expertmiss.experiments.b.arms import Array, Classes


class Levels(NamedTuple):
    """``classes`` by layer [L]; ``supply`` by class: 10th percentile over documents of mass per token, by layer [L]; ``mu`` by name of the
    level: budget per token by layer [L]."""

    classes: list[Classes]
    supply: dict[str, Array]
    mu: dict[str, list[float]]


def weighted_quantile(values: Array, share: float) -> float:
    """The smallest value at which values up to it hold ``share`` of the sum of all (each value weighs itself)."""
    ordered = np.sort(values)
    mass = np.cumsum(ordered)
    return float(ordered[np.searchsorted(mass, share * mass[-1])])


def supply(weight: Array, layer: NDArray[np.int64], document: NDArray[np.int64], shape: tuple[int, int], tokens: int) -> Array:
    """[D, L] sum of ``weight`` per token of each document and layer."""
    found = np.zeros(shape)
    np.add.at(found, (document, layer), weight)
    return found / tokens


def find_levels(misses: Mapping[str, NDArray[Any]], shape: tuple[int, int], tokens: int, plan: Mapping[str, Any]) -> Levels:
    """Classes and levels from the reference's misses of rank >= 1, each layer's from its own.

    A layer's primary budget is a share of its scarcer class's supply, so that every layer can pay it; layers that miss rarely have a small
    one, or none. Where a layer never misses, no call is light or heavy.

    Args:
        misses: ``document`` (0 .. D - 1), ``layer``, ``weight``.
        shape: (D, L).
        tokens: of a document.
        plan: ``class_shares`` (two mass-weighted quantiles), ``supply_quantile``, ``primary_share``, ``levels`` (factors by name).

    Raises:
        UserError: no misses, or a class that every layer of too many documents lacks.
    """
    weight, layer = misses["weight"], misses["layer"]
    if len(weight) == 0:
        raise UserError("Experiment B: the reference run has no miss of rank >= 1; lower the residency")
    classes = [_classes(weight[layer == at], plan["class_shares"]) for at in range(shape[1])]
    found = {}
    for name, inside in (
        ("heavy", weight >= np.array([bounds.heavy for bounds in classes])[layer]),
        ("light", weight < np.array([bounds.light for bounds in classes])[layer]),
    ):
        by_layer = supply(weight[inside], layer[inside], misses["document"][inside], shape, tokens)
        found[name] = np.quantile(by_layer, plan["supply_quantile"], axis=0)
    primary = plan["primary_share"] * np.minimum(found["heavy"], found["light"])
    if not primary.any():
        raise UserError("Experiment B: no layer has a supply of heavy and light misses; use more or longer documents")
    return Levels(classes, found, {name: (factor * primary).tolist() for name, factor in plan["levels"].items()})


def _classes(weight: Array, shares: Sequence[float]) -> Classes:
    """Classes of a layer from the weights of its misses."""
    return Classes(*(weighted_quantile(weight, share) for share in shares)) if len(weight) else Classes(0.0, 1.0)
