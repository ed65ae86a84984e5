"""Fair timing of two ways to decode the same text: interleaved blocks in random order, paired ratios with an interval."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from expertmiss.engine.session import Engine


@dataclass(frozen=True)
class Ratio:
    """Median over pairs, with a 95 % bootstrap interval."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.4f} [{self.low:.4f}, {self.high:.4f}]"


def interleave(
    variants: Mapping[str, Callable[[int], None]],
    rounds: int,
    warm_up: int = 2,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, NDArray[np.float64]]:
    """Seconds [rounds] of every variant's block, ``run(round)``; each round runs all of them once, in a random order.

    A shared machine stalls for tens of milliseconds now and then: what is compared must lie close together in time, and the order must not
    favour one. ``warm_up`` rounds before are not counted. ``clock``: ``time.process_time`` counts processor time instead, which tells computing
    from waiting for a processor that others use.
    """
    order = np.random.default_rng(seed)
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(warm_up + rounds):
        for name in order.permutation(list(variants)):
            begin = clock()
            variants[name](number)
            if number >= warm_up:
                seconds[name].append(clock() - begin)
    return {name: np.array(values) for name, values in seconds.items()}


def ratio(over: NDArray[np.float64], under: NDArray[np.float64], resamples: int = 2000) -> Ratio:
    """Paired block ratios ``over / under``: median and interval."""
    pairs = over / under
    draws = np.random.default_rng(1).integers(0, len(pairs), (resamples, len(pairs)))
    medians = np.median(pairs[draws], axis=1)
    return Ratio(float(np.median(pairs)), float(np.quantile(medians, 0.025)), float(np.quantile(medians, 0.975)))


def decoder(engine: Engine, tokens: NDArray[np.int64], block: int) -> Callable[[int], None]:
    """``run(round)`` for :func:`interleave`: the round's ``block`` tokens, after a reset where the context is full."""

    def run(number: int) -> None:
        for token in tokens[number * block : (number + 1) * block]:
            engine.step(token)

    return run
