"""Cluster bootstrap: intervals for smooth functions of document totals.

Documents of one source (a package, a template) are not independent, so whole sources are drawn with replacement and tokens
never are. Every statistic of the project is a function of totals over documents: a ratio of sums (hit rate = sum of hits /
sum of calls), a difference of two ratios (a policy against its reference on the same documents), the exponential of such a
difference (perplexity change). A resample is a vector of counts per cluster, so all its totals are one matrix product, and all
columns (policies, capacities, distances) share the same resamples: differences between columns are paired.

Intervals are bias-corrected and accelerated (BCa; Efron and Tibshirani 1993, ch. 14.3; acceleration by leaving out one cluster at
a time), as in ``scipy.stats.bootstrap``, which a test compares with. SciPy itself gathers rows for every column anew; for 2,000
resamples of a few thousand columns the product is two orders of magnitude less work.

Known limit: on a skewed ratio of sums nominal 95 % intervals covered the truth in 93 % of samples of 40 clusters and 94 % of 60.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from expertmiss.errors import UserError

Array = NDArray[np.float64]
# Totals [X, columns, ...] to values [X, ...]; X runs over resamples.
Statistic = Callable[[Array], Array]


def ratio(totals: Array) -> Array:
    """Column 0 over column 1: a ratio of sums."""
    return totals[:, 0] / totals[:, 1]


def ratio_difference(totals: Array) -> Array:
    """Column 0 over 1, minus column 2 over 3: a policy minus its reference."""
    return totals[:, 0] / totals[:, 1] - totals[:, 2] / totals[:, 3]


@dataclass(frozen=True)
class Interval:
    """Estimates with bounds, all of one shape, and how far to trust them.

    ``reliable`` is ``yes``, or says why the interval decides nothing. Bounds are NaN where the statistic is undefined in some
    resample (a share of nothing).
    """

    estimate: Array
    low: Array
    high: Array
    clusters: int
    reliable: str


class ClusterBootstrap:
    """Resamples of clusters, drawn once and used for every statistic.

    Args:
        clusters: [N] cluster of every document.
        resamples: number of resamples.
        confidence: coverage of the intervals, two-sided.
        seed: seed of the draws; equal seeds give equal intervals.
        min_clusters: fewer clusters make every interval ``inconclusive``.

    Raises:
        UserError: no documents, or options out of range.
    """

    def __init__(
        self,
        clusters: Sequence[str] | NDArray[Any],
        *,
        resamples: int = 2000,
        confidence: float = 0.95,
        seed: int = 1,
        min_clusters: int = 40,
    ) -> None:
        if len(clusters) == 0:
            raise UserError("cluster bootstrap: no documents; record at least one")
        if resamples < 1 or not 0 < confidence < 1:
            raise UserError(f"stats: resamples={resamples}, confidence={confidence}; give resamples >= 1 and a confidence between 0 and 1")
        names, self._of = np.unique(np.asarray(clusters), return_inverse=True)
        self.clusters, self.confidence = len(names), confidence
        self.reliable = "yes" if self.clusters >= min_clusters else f"inconclusive: n clusters < {min_clusters}"
        generator = np.random.default_rng(seed)
        draws = generator.multinomial(self.clusters, np.full(self.clusters, 1 / self.clusters), size=resamples)
        self._counts: Array = draws.astype(np.float64)

    def interval(self, statistic: Statistic, columns: ArrayLike) -> Interval:
        """Estimate and BCa interval of ``statistic``.

        Args:
            statistic: see :data:`Statistic`, e.g. :func:`ratio`.
            columns: [N, columns, ...], one row a document.
        """
        values = np.asarray(columns, dtype=np.float64)
        shape = values.shape[1:]
        totals = np.zeros((self.clusters, int(np.prod(shape))))
        np.add.at(totals, self._of, values.reshape(len(values), totals.shape[1]))
        whole = totals.sum(axis=0, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            estimate = statistic(whole.reshape(1, *shape))[0]
            drawn = statistic((self._counts @ totals).reshape(len(self._counts), *shape))
            left_out = statistic((whole - totals).reshape(self.clusters, *shape))
        low, high = _bca(estimate, drawn, left_out, self.confidence)
        return Interval(estimate, low, high, self.clusters, self.reliable)


def _bca(estimate: Array, drawn: Array, left_out: Array, confidence: float) -> tuple[Array, Array]:
    """BCa bounds of ``estimate`` [...] from resampled [B, ...] and leave-one-cluster-out [G, ...] values.

    Where the correction is undefined (all resamples on one side, or a statistic no cluster changes) plain percentiles are used.
    """
    below = (drawn < estimate).mean(axis=0) + (drawn == estimate).mean(axis=0) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        bias = ndtri(below)
        change = left_out.mean(axis=0) - left_out
        acceleration = (change**3).sum(axis=0) / (6 * (change**2).sum(axis=0) ** 1.5)
        bounds = []
        ordered = np.sort(drawn, axis=0)  # NaN last
        for tail in ((1 - confidence) / 2, (1 + confidence) / 2):
            shifted = bias + ndtri(tail)
            level = ndtr(bias + shifted / (1 - acceleration * shifted))
            bounds.append(_quantile(ordered, np.where(np.isfinite(level), level, tail)))
    # Rounding alone separates resamples of a constant.
    flat = np.ptp(drawn, axis=0) <= 1e-12 * np.abs(estimate)
    return np.where(flat, estimate, bounds[0]), np.where(flat, estimate, bounds[1])


def _quantile(ordered: Array, level: Array) -> Array:
    """Linear-interpolated quantile ``level`` [...] of ``ordered`` [B, ...] along axis 0; NaN where any value is NaN."""
    position = level * (len(ordered) - 1)
    lower = np.floor(position).astype(np.intp)
    upper = np.minimum(lower + 1, len(ordered) - 1)
    first = np.take_along_axis(ordered, lower[None], axis=0)[0]
    second = np.take_along_axis(ordered, upper[None], axis=0)[0]
    result: Array = np.where(np.isnan(ordered[-1]), np.nan, first + (second - first) * (position - lower))
    return result
