"""Statistics of an arm's answers against the reference's, with intervals over templates.

Everything is a function of totals over templates, so that :class:`expertmiss.stats.bootstrap.ClusterBootstrap` resamples whole templates. ``mass`` of a
problem is its substituted gate mass per token-layer over the arm's own decode steps, those after the texts part included.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from expertmiss.generate.solve import Row
from expertmiss.stats.bootstrap import ClusterBootstrap, Interval

Array = NDArray[np.float64]
POWER = 0.8


def detectable(low: float, high: float, confidence: float) -> float:
    """Smallest effect that a two-sided test finds with a power of 80 %, from an interval's width read as that of a normal one; NaN where it has none."""
    if not high > low:
        return float("nan")
    both = norm.ppf((1 + confidence) / 2)
    return float((high - low) / (2 * both) * (both + norm.ppf(POWER)))


def mass(row: Row) -> float:
    """Substituted mass per token-layer of an answer; 0 where nothing was fed back."""
    meters = row["meters"]
    return float(meters["mass"] / meters["tokens"]) if meters["tokens"] else 0.0


def auc(bootstrap: ClusterBootstrap, sources: Sequence[str], scores: Array, flipped: NDArray[np.bool_]) -> Interval | None:
    """P(score of a flipped problem > score of another), ties half, with its interval over sources; None where all or none flipped.

    Args:
        bootstrap: over the same sources.
        scores, flipped: [N], a problem each.
    """
    if flipped.all() or not flipped.any():
        return None
    names, of = np.unique(np.asarray(sources), return_inverse=True)
    ahead = np.sign(scores[flipped][:, None] - scores[~flipped][None, :]) / 2 + 0.5
    pairs = np.zeros((len(names), len(names)))
    np.add.at(pairs, (of[flipped][:, None], of[~flipped][None, :]), ahead)
    counts = [np.bincount(of[chosen], minlength=len(names)).astype(np.float64) for chosen in (flipped, ~flipped)]

    def statistic(times: Array) -> Array:
        """Times each source was drawn [X, G] to AUC [X]."""
        found: Array = ((times @ pairs) * times).sum(1) / ((times @ counts[0]) * (times @ counts[1]))
        return found

    # Rows that add up to one a source: the totals of a resample are how often it drew each source.
    shares = np.zeros((len(of), len(names)))
    shares[np.arange(len(of)), of] = 1 / np.bincount(of)[of]
    return bootstrap.interval(statistic, shares)


def concordant(masses: Array, agreements: Array) -> Array:
    """Share of pairs of arms in which the arm of less mass agrees more, ties half: [X, arms] twice to [X]."""
    pairs = np.array(list(combinations(range(masses.shape[1]), 2)))
    first, second = pairs[:, 0], pairs[:, 1]
    order = np.sign(masses[:, first] - masses[:, second]) * np.sign(agreements[:, second] - agreements[:, first])
    found: Array = (order / 2 + 0.5).mean(1)
    return found


def order_of_arms(bootstrap: ClusterBootstrap, arms: Sequence[Sequence[Row]], references: Sequence[Row]) -> Interval:
    """Interval of :func:`concordant` over ``arms`` (at least 2), problems of all in one order; agreement is the share of equal texts."""
    columns = np.array(
        [
            [[row["meters"]["mass"], row["meters"]["tokens"], row["text"] == reference["text"], 1.0] for row in rows]
            for rows, reference in zip(zip(*arms, strict=True), references, strict=True)
        ],
        dtype=np.float64,
    )  # [problems, arms, 4]
    return bootstrap.interval(lambda totals: concordant(totals[..., 0] / totals[..., 1], totals[..., 2] / totals[..., 3]), columns)


def unbiased_pass(right: int, samples: int, k: int) -> float:
    """Unbiased estimate of the chance that one of ``k`` answers is right, given ``right`` of ``samples`` (Chen et al. 2021, eq. 1)."""
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} needs at least {k} samples, there are {samples}")
    return 1 - comb(samples - right, k) / comb(samples, k)


def survival(splits: Sequence[int | None], last: int) -> Array:
    """[last + 1] share of problems whose first t tokens are the reference's, t = 0 .. ``last``; equal answers, of any length, stay equal.

    Args:
        splits: first differing position of each problem, None for equal answers.
    """
    parted = np.array([np.inf if split is None else split for split in splits])
    found: Array = (parted >= np.arange(last + 1)[:, None]).mean(1)
    return found


def statistic_row(
    task: str, statistic: str, arm: str, against: str, interval: Any, confidence: float, n: int, **more: Any
) -> dict[str, Any]:
    """A row of the statistics that predictions are judged by."""
    low, high = float(interval.low), float(interval.high)
    return {
        "task": task, "statistic": statistic, "arm": arm, "against": against, "estimate": float(interval.estimate), "low": low, "high": high,
        "confidence": confidence, "problems": n, "templates": interval.clusters, "reliable": interval.reliable,
        "detectable": detectable(low, high, confidence), **more,
    }  # fmt: skip
