"""``expertmiss simulate``: one policy over a trace from the command line, and one step of it explained.

``--explain DOCUMENT TOKEN LAYER`` replays the document in that layer up to the token and prints what the step saw and did, in the order of
"One step" of the definitions, so that a person can check it against the page.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from expertmiss import policies
from expertmiss._core import VERDICTS, Stepper
from expertmiss.errors import UserError
from expertmiss.files import atomic_path
from expertmiss.simulate.capacity import resident_experts
from expertmiss.traces.format import Layer, Trace


def simulate_one(path: Path, policy: dict[str, Any], residency: float, calibration: Path | None, log: Path | None = None) -> str:
    """Totals of one policy over a trace, as text; with ``log``, its decision log goes to ``log/calls.parquet`` and ``log/landings.parquet``."""
    trace, counts, capacity = prepare(path, policy, residency, calibration)
    meters = policies.simulate(trace, policy, capacity, counts=counts, log=log is not None)
    if log is not None:
        write_log(meters["log"], log)
    calls = int(meters["calls"].sum())
    lines = [
        f"{policy['name']} over {path.name}: C = {capacity} of {trace.meta.experts}, {trace.meta.tokens:,} tokens x {trace.meta.layers} layers, {calls:,} calls"
    ]
    for name in ("hits", "fetches", "substituted", "dropped", "fallback_fetches", "fallback_drops", "landings", "wasted"):
        total = int(meters[name].sum())
        lines.append(f"  {name:<17} {total:>12,}  {total / calls:8.3%} of calls")
    steps = meters["tokens"].sum()
    lines.append(f"  substituted mass  {meters['mass'].sum() / steps:>12.5f}  per token-layer")
    lines.append(f"  agreement         {meters['agreement'].sum() / steps:>12.5f}  |executed n S| / K")
    return "\n".join(lines)


def write_log(log: Any, folder: Path) -> None:
    """The core's decision log as two tables: one row a call (verdict by name, substitute and victim or -1), one row a landing."""
    for name in ("calls", "landings"):
        table = pa.table(dict(log[name]))
        if name == "calls":
            verdict = pa.DictionaryArray.from_arrays(pa.array(log[name]["verdict"], pa.int8()), pa.array(VERDICTS))
            table = table.set_column(table.schema.get_field_index("verdict"), "verdict", verdict)
        with atomic_path(folder / f"{name}.parquet") as target:
            pq.write_table(table, target)


def explain_step(
    path: Path, policy: dict[str, Any], residency: float, calibration: Path | None, document: int, token: int, layer: int
) -> str:
    """One step as text.

    Raises:
        UserError: no such document, token or layer; a pool shared by layers (its steps depend on every layer before).
    """
    trace, counts, capacity = prepare(path, policy, residency, calibration)
    meta = trace.meta
    if policy.get("scope") == "global":
        raise UserError(f"policy {policy['name']}: --explain replays one layer, and this policy's pool is shared by all; use scope: layer")
    if policy.get("state") == "carry":
        raise UserError(
            f"policy {policy['name']}: --explain replays one document, and this policy's state is carried over documents; use state: reset"
        )
    if policy.get("eviction", {}).get("name") == "opt":
        raise UserError(f"policy {policy['name']}: --explain steps forward, and opt looks at later requests; choose another eviction")
    if not 0 <= layer < meta.layers:
        raise UserError(f"--explain: layer {layer} is not in the trace (0 to {meta.layers - 1})")
    rows = np.flatnonzero(trace.document == document)
    if len(rows) == 0:
        raise UserError(f"--explain: document {document} is not in the trace; its documents are {_some(np.unique(trace.document))}")
    if not 0 <= token < len(rows):
        raise UserError(f"--explain: token {token} is not in document {document} (0 to {len(rows) - 1})")
    stepper = Stepper(meta.geometry(), policy, capacity, counts)
    stepper.reset(document)
    logits = _all_logits(trace.layer(layer), rows[: token + 1], meta.experts)
    for z in logits[:-1]:
        stepper.step(layer, z)
    step = stepper.explain(layer, logits[-1])
    return _render(step, policy, capacity, meta.top_k, exact=meta.depth == meta.experts)


def prepare(path: Path, policy: dict[str, Any], residency: float, calibration: Path | None) -> tuple[Trace, NDArray[np.int64] | None, int]:
    """The trace, the request counts of a warm start and the capacity, checked against the policy.

    Raises:
        UserError: a file that is no sound trace, C < K, a warm start without counts, traces of different models.
    """
    trace = Trace.open(path, check_values=True)
    capacity = resident_experts(residency, trace.meta.experts, trace.meta.top_k)
    policies.validate(policy, trace.meta.geometry(), capacity)
    if policy.get("initial", "warm") == "warm" and calibration is None:
        raise UserError("--calibration: a warm start counts requests in a calibration trace; name one, or set policy.initial=cold")
    counts = None if calibration is None else policies.request_counts(Trace.open(calibration, check_values=True))
    if counts is not None and counts.shape != (trace.meta.layers, trace.meta.experts):
        raise UserError(
            f"{calibration}: {counts.shape[0]} layers of {counts.shape[1]} experts, but {path} has {trace.meta.layers} of {trace.meta.experts}"
        )
    return trace, counts, capacity


def _all_logits(layer: Layer, rows: NDArray[np.int64], experts: int) -> NDArray[np.float32]:
    """Rows of all E logits. Experts below the recorded depth get the smallest recorded logit: they rank last either way."""
    z = np.repeat(layer.zmin[rows][:, None], experts, axis=1)
    np.put_along_axis(z, layer.ids[rows].astype(np.int64), layer.z[rows], axis=1)
    return z


def _some(values: NDArray[Any]) -> str:
    shown = ", ".join(str(value) for value in values[:8])
    return shown + (f", ... {values[-1]}" if len(values) > 8 else "")


def _render(step: Any, policy: dict[str, Any], capacity: int, k: int, exact: bool) -> str:
    residents = {int(expert) for expert in step["residents_before"]}
    landed = {expert for expert, _ in step["landed"]}
    lines = [
        f"policy {policy['name']}: {_terms(policy)}",
        f"document {step['document']}, token t = {step['t']}, layer {step['layer']}; K = {k}, C = {capacity}, {len(residents)} residents before the step",
        "",
        "0. rank order" + ("" if exact else " (the trace records only its depth; p of the experts below it is not exact)"),
        "   rank expert        z         p         s         w   resident",
    ]
    shown = min(len(step["order"]), max(2 * k, int(step["ranks"].max()) + 1))
    for rank in range(shown):
        expert = int(step["order"][rank])
        where = "landed now" if expert in landed else "yes" if expert in residents else "no"
        line = f"   {rank:>4} {expert:>6} {step['z'][rank]:>9.4f} {step['p'][rank]:>9.6f} {step['s'][rank]:>9.6f} {step['w'][rank]:>9.6f}   {where}"
        lines.append(line + ("   <- K" if rank == k - 1 else ""))
    lines.append(
        "1. landed: "
        + (", ".join(f"{expert}" + (f" (evicts {victim})" if victim >= 0 else "") for expert, victim in step["landed"]) or "nothing")
    )
    lines.append(
        "2. requested X (true ranks): "
        + ", ".join(f"{expert} ({rank})" for expert, rank in zip(step["requested"], step["ranks"], strict=True))
    )
    lines.append("3. to 6. verdicts, substitutes, victims, executed weights")
    executed = dict(zip(step["executed"].tolist(), step["weights"].tolist(), strict=True))
    for expert, verdict, substitute, victim in zip(
        step["requested"].tolist(), step["verdicts"], step["substitutes"], step["victims"], strict=True
    ):
        runs = int(substitute) if substitute >= 0 else expert
        weight = f"weight {executed[runs]:.6f}" if runs in executed and verdict not in ("drop", "fallback_drop") else "not executed"
        lines.append(
            f"   {expert:>6} {verdict:<15}"
            + (f" by {substitute}" if substitute >= 0 else "")
            + (f" evicts {victim}" if victim >= 0 else "")
            + f"  {weight}"
        )
    mass = [(expert, value) for expert, value in enumerate(step["A"].tolist()) if value > 0]
    lines.append("8. accumulated mass A after: " + (", ".join(f"{expert}: {value:.4f}" for expert, value in mass) or "all 0"))
    lines.append("   queue after: " + (", ".join(f"{expert} due {due}" for _, expert, due in step["queue"]) or "empty"))
    lines.append("   residents after: " + " ".join(str(expert) for expert in step["residents_after"]))
    return "\n".join(lines)


def _terms(policy: dict[str, Any]) -> str:
    parts = []
    for part in ("miss_rule", "chooser", "weights", "eviction", "admission"):
        options = dict(policy.get(part, {}))
        name = options.pop("name", None)
        if name is not None:
            parts.append(f"{part} {name}" + (f" ({', '.join(f'{key} {value}' for key, value in options.items())})" if options else ""))
    return "; ".join(parts)
