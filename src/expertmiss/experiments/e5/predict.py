"""The time model against the engine: every policy of the paper at every capacity, on the streams where all of them were timed.

Requests come from the simulator (open loop: over the routers that the lossless model recorded), times from the host's calibration. Two predictions:
by the calibration alone, and with one factor on computing and one on waiting, fitted on some policies and judged on the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import nnls

from expertmiss import _core
from expertmiss.errors import UserError
from expertmiss.evaluation import FIRST_TARGET
from expertmiss.simulate.time_model import HostTimes, predict, requests_of
from expertmiss.traces.format import Trace

PARTS = ("computing", "waiting")
"""``computing``: the model and the policy core. ``waiting``: reads that the step waits for, late background reads included."""


def predictions(times: pd.DataFrame, trace: Trace, counts: NDArray[np.int64], host: HostTimes, rules: Mapping[str, Any]) -> pd.DataFrame:
    """One line a policy and capacity: measured and predicted milliseconds per token, relative errors, bytes per token.

    Args:
        times: table of run_engine.
        trace: of the split that was decoded; must hold the timed streams.
        counts: [L, E] requests in the calibration split.
        rules: ``prereg/e5.yaml``.

    Raises:
        UserError: the trace lacks a timed stream.
    """
    first = times[times["repeat"] == 0]
    timed = sorted(first.loc[first["arm"] == "cell", "document"].unique()) or sorted(first["document"].unique())
    missing = sorted(set(timed) - set(trace.document.tolist()))
    if missing:
        raise UserError(
            f"{trace.path}: lacks stream {missing[0]} of E5 ({len(missing)} in all); raise capture.documents to at least e5.documents"
        )
    chosen = first[first["arm"].isin(["reference", "paper", "cell"]) & first["document"].isin(timed)]
    length = int(chosen["tokens"].iloc[0]) + FIRST_TARGET + 1  # the last token is a target only
    found = []
    for (name, _), part in chosen.groupby(["policy", "capacity"], sort=False):
        policy, capacity = str(name), int(part["capacity"].iloc[0])
        seconds = {column: part[column].sum() / part["tokens"].sum() for column in ("wall", "fetch_bytes", "admission_bytes")}
        expected = _simulated(trace, timed, length, {"name": policy, **rules["policies"][policy]}, capacity, counts, host)
        found.append({
            "policy": policy, "residency": float(part["residency"].iloc[0]), "capacity": capacity, "role": "fit" if policy in rules["prediction"]["fit"] else "held out",
            "measured": 1e3 * seconds["wall"], **{half: 1e3 * expected[half] for half in PARTS}, "measured_bytes": seconds["fetch_bytes"] + seconds["admission_bytes"],
            "predicted_bytes": expected["bytes"], "streams": len(timed),
        })  # fmt: skip
    return with_fit(pd.DataFrame(found))


def _simulated(
    trace: Trace, documents: list[int], length: int, policy: Mapping[str, Any], capacity: int, counts: NDArray[np.int64], host: HostTimes
) -> dict[str, float]:
    """Mean seconds and bytes of a token, the first ones left out, over ``length`` tokens of the documents."""
    rows = np.concatenate([np.flatnonzero(trace.document == document)[:length] for document in documents])
    layers = [tuple(part[rows] for part in layer) for layer in trace.layers]
    result = _core.simulate(layers, trace.document[rows], trace.meta.geometry(), dict(policy), capacity, counts, 0, True, kl=False)
    assert result["log"] is not None
    totals, tokens = dict.fromkeys((*PARTS, "bytes"), 0.0), 0
    for requests in requests_of(result["log"], trace.meta.layers).values():
        found, kept = predict(requests, host), slice(FIRST_TARGET, length - 1)
        totals["computing"] += float((found.compute + found.policy)[kept].sum())
        totals["waiting"] += float((found.waiting + found.background)[kept].sum())
        totals["bytes"] += float((requests.fetches + requests.landings)[kept].sum()) * host.expert_bytes
        tokens += length - 1 - FIRST_TARGET
    return {name: value / tokens for name, value in totals.items()}


def with_fit(frame: pd.DataFrame) -> pd.DataFrame:
    """Add the predictions ``calibrated`` and ``fitted`` with their relative errors, and the fit's factors on computing and waiting.

    The factors minimise squared relative errors over rows whose ``role`` is ``fit`` and are not below zero.
    """
    fit = frame[frame["role"] == "fit"]
    factors = nnls(fit[list(PARTS)].to_numpy() / fit["measured"].to_numpy()[:, None], np.ones(len(fit)))[0]
    found = frame.assign(calibrated=frame[list(PARTS)].sum(axis=1), fitted=frame[list(PARTS)].to_numpy() @ factors)
    for name in ("calibrated", "fitted"):
        found[f"error_{name}"] = found[name] / found["measured"] - 1
    return found.assign(**{f"factor_{name}": factor for name, factor in zip(PARTS, factors, strict=True)})


def summary(frame: pd.DataFrame) -> dict[str, float]:
    """Median absolute relative errors on held-out rows, of both predictions and of the bytes."""
    held = frame[frame["role"] == "held out"]
    moved = held[held["measured_bytes"] > 0]
    return {
        "calibrated": float(held["error_calibrated"].abs().median()), "fitted": float(held["error_fitted"].abs().median()),
        "bytes": float((moved["predicted_bytes"] / moved["measured_bytes"] - 1).abs().median()), "cells": len(held),
    }  # fmt: skip
