"""Weight classes, their supply, and the mass levels that an arm can be held to: all from the pilot's reference run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from expertmiss.errors import UserError
from expertmiss.experiments.b.arms import Array, Classes


class Levels(NamedTuple):
    """``classes``; ``supply`` by class: 10th percentile over documents of mass per token, by layer [L]; ``mu`` by name of the level."""

    classes: Classes
    supply: dict[str, Array]
    mu: dict[str, float]


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
    """Classes and levels from the reference's misses of rank >= 1.

    Args:
        misses: ``document`` (0 .. D - 1), ``layer``, ``weight``.
        shape: (D, L).
        tokens: of a document.
        plan: ``class_shares`` (two mass-weighted quantiles), ``supply_quantile``, ``primary_share``, ``levels`` (factors by name).

    Raises:
        UserError: no misses, or a class that some layer of too many documents lacks.
    """
    weight = misses["weight"]
    if len(weight) == 0:
        raise UserError("Experiment B: the reference run has no miss of rank >= 1; lower the residency")
    classes = Classes(*(weighted_quantile(weight, share) for share in plan["class_shares"]))
    found = {}
    for name, inside in (("heavy", weight >= classes.heavy), ("light", weight < classes.light)):
        by_layer = supply(weight[inside], misses["layer"][inside], misses["document"][inside], shape, tokens)
        found[name] = np.quantile(by_layer, plan["supply_quantile"], axis=0)
    primary = plan["primary_share"] * min(float(values.min()) for values in found.values())
    if primary <= 0:
        scarce = min(found, key=lambda name: float(found[name].min()))
        raise UserError(f"Experiment B: no supply of {scarce} misses in layer {int(found[scarce].argmin())}; use more or longer documents")
    return Levels(classes, found, {name: primary * factor for name, factor in plan["levels"].items()})
