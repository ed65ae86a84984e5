"""The compiled simulator on a recorded trace."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expertmiss import _core
from expertmiss.errors import UserError
from expertmiss.policies.validate import validate
from expertmiss.traces.format import Trace


def request_counts(trace: Trace) -> NDArray[np.int64]:
    """[L, E] how often each expert is among the first K of each layer: what a warm start orders experts by."""
    meta = trace.meta
    return np.stack([_core.request_counts(layer.ids, meta.top_k, meta.experts) for layer in trace.layers])


def calibration_counts(path: Path, model: str, digest: str) -> NDArray[np.int64]:
    """:func:`request_counts` of the calibration trace ``path``.

    Args:
        model: the model's folder or name, for the message.
        digest: of the model that runs; the trace must be of the same.

    Raises:
        UserError: the trace cannot be read, or is of another model.
    """
    trace = Trace.open(path, check_values=True)
    if trace.meta.model_revision != digest:
        raise UserError(f"{path}: captured with another model than {model}; run capture_traces again")
    return request_counts(trace)


def draws(policy: Mapping[str, Any]) -> bool:
    """Whether a run of the policy depends on the run's seed: a chooser that draws and names no seed of its own, or random residents."""
    chooser = policy.get("chooser") or {}
    return policy.get("initial") == "random" or (chooser.get("name") in ("random", "matched_random") and chooser.get("seed") is None)


def simulate(
    trace: Trace,
    policy: Mapping[str, Any],
    capacity: int,
    *,
    counts: NDArray[np.int64] | None = None,
    seed: int = 0,
    threads: int = 1,
    kl: bool = True,
    log: bool = False,
    check: bool = False,
) -> dict[str, Any]:
    """Replay ``policy`` over ``trace`` (open loop: the recorded routers do not see what the policy changed).

    Args:
        capacity: C, resident experts per layer.
        counts: :func:`request_counts` of the calibration trace; needed by ``initial: warm``.
        seed: of random residents, and of choosers that name none.
        threads: layers simulated at once.
        kl: also sum KL(executed || router).
        log: also return the decision log under ``log``.
        check: assert the invariants of the definitions at every step.

    Returns:
        ``document`` [D] int32 and the fields of ``_core.Meters``, each [D, L], one row per run of equal document id.

    Raises:
        UserError: a policy that the definitions refuse, or rows that no sound trace holds.
    """
    geometry = trace.meta.geometry()
    validate(policy, geometry, capacity)
    if counts is None and policy.get("initial", "warm") == "warm":
        raise UserError(f"policy '{policy.get('name')}': a warm start needs a calibration trace; give one, or set initial to cold")
    try:
        result = _core.simulate(
            trace.layers, trace.document, geometry, dict(policy), capacity, counts, seed, log, kl=kl, threads=threads, check=check
        )
    except ValueError as problem:
        raise UserError(f"{trace.path}: {problem}") from None
    answer: dict[str, Any] = {"document": result["documents"], **result["meters"]}
    return {**answer, "log": result["log"]} if log else answer


def initial_digest(order: NDArray[np.uint16]) -> str:
    """SHA-256 of an insertion order (``initial_order`` of a result or a Stepper) as little-endian uint16 pairs (layer, expert)."""
    return hashlib.sha256(np.ascontiguousarray(order, dtype="<u2").tobytes()).hexdigest()
