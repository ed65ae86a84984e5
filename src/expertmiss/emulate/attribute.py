"""Whose fault is a token's loss: its NLL change shared among its substituted calls, by rank and by gate weight.

A token's change of NLL (policy minus reference, nats) is divided among the calls substituted for that token, over all layers, in
proportion to their gate weights. What a token loses without a substitution of its own came through the context (attention to changed
tokens) and is kept apart. The parts add up to the document's total. It is a description, not a cause: calls of one token are
substituted together, and heavy calls have low ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from expertmiss._core import VERDICTS

REROUTING = ("cache_prior", "max_rank")  # their log holds the calls of X; what S lost to it stands in no row
EDGES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 1.0)
"""Bins of gate weight: [edge, next edge), the last one closed."""
SUBSTITUTE = VERDICTS.index("substitute")


class Attribution(NamedTuple):
    """A document's substituted calls by rank (row) and weight bin (column), [K + 1, B] each; the last row is loss without own substitution."""

    calls: NDArray[np.int64]
    mass: NDArray[np.float64]
    loss: NDArray[np.float64]


def attribute(calls: Mapping[str, NDArray[Any]], change: NDArray[np.float64], top_k: int, first: int) -> Attribution:
    """Share out ``change`` among the substituted calls of a decision log.

    Args:
        calls: columns ``t``, ``rank``, ``weight``, ``verdict`` of one document's log, in any order.
        change: [T - 1] NLL change of the target that follows each token, nats.
        top_k: K.
        first: targets before it are left out, their calls too.
    """
    shape = (top_k + 1, len(EDGES) - 1)
    token = calls["t"].astype(np.int64)
    kept = (calls["verdict"] == SUBSTITUTE) & (token >= first) & (token < len(change))
    token, weight, rank = token[kept], calls["weight"][kept], calls["rank"][kept].astype(np.int64)
    column = np.clip(np.searchsorted(EDGES, weight, side="right") - 1, 0, shape[1] - 1)
    cell = rank * shape[1] + column
    total = np.bincount(token, weights=weight, minlength=len(change))
    size = shape[0] * shape[1]
    counted = np.bincount(cell, minlength=size)
    mass = np.bincount(cell, weights=weight, minlength=size)
    # A weight may underflow to zero; a token whose calls all did shares its change evenly.
    share = np.where(total[token] > 0, weight, 1.0) / np.where(total > 0, total, np.bincount(token, minlength=len(change)))[token]
    loss = np.bincount(cell, weights=change[token] * share, minlength=size)
    alone = np.zeros(len(change), dtype=bool)
    alone[first:] = np.bincount(token, minlength=len(change))[first:] == 0
    loss[top_k * shape[1]] = change[alone].sum()
    return Attribution(
        counted.reshape(shape).astype(np.int64), mass.astype(np.float64).reshape(shape), loss.astype(np.float64).reshape(shape)
    )


def attribution_frame(
    joined: Sequence[Mapping[str, NDArray[Any]]], about: pd.DataFrame, identity: Sequence[Mapping[str, Any]]
) -> pd.DataFrame:
    """Parts of all documents as one row per policy, document, rank and weight bin that holds anything; re-routing rules are left out.

    ``rank`` is -1 and ``weight_from`` NaN for loss without a substitution of the token's own.
    """
    frames = []
    columns = ["row", "policy", "arm", "family", "residency", "capacity", "seed"]
    shared = ~about["miss_rule"].isin(REROUTING).to_numpy()[:, None, None]
    for who, part in zip(identity, joined, strict=True):
        row, rank, column = np.nonzero(shared & ((part["split.calls"] > 0) | (part["split.loss"] != 0)))
        own = rank < part["split.calls"].shape[1] - 1
        frame = about[columns].iloc[row].reset_index(drop=True).assign(
            **who, rank=np.where(own, rank, -1), weight_from=np.where(own, np.array(EDGES)[column], np.nan),
            weight_to=np.where(own, np.array(EDGES)[column + 1], np.nan),
            **{name: part[f"split.{name}"][row, rank, column] for name in Attribution._fields},
        )  # fmt: skip
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)
