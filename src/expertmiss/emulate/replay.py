"""Router logits that the emulator recorded, as a trace that the simulator replays.

Under a policy the replay makes the emulator's decisions again, slot for slot (agreement gate 2). The logits of the ``fetch_all`` row replayed
under another policy are the open loop: the routers do not see what that policy changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expertmiss import _core
from expertmiss.emulate.emulator import Emulated
from expertmiss.emulate.rows import Row
from expertmiss.errors import UserError
from expertmiss.traces.format import Trace, TraceMeta


def recorded_trace(documents: Sequence[tuple[int, Emulated]], row: int, meta: Mapping[str, Any]) -> Trace:
    """One row's router logits over several documents, ranked whole (M = all experts that can be ranked), in memory.

    Args:
        documents: (document id, what :meth:`~expertmiss.emulate.emulator.Emulator.whole` gave with ``keep``).
        row: the row of the batch.
        meta: :attr:`~expertmiss.emulate.emulator.Emulator.meta`.

    Raises:
        UserError: no logits were kept, or they are float64, which a trace cannot hold exactly.
    """
    parts = []
    for document, emulated in documents:
        if emulated.decisions is None:
            raise UserError(f"document {document}: its router logits were not kept; emulate it with keep=True")
        parts.append([layer[0][row] for layer in emulated.decisions.logits])
        if parts[-1][0].dtype != np.float32:
            raise UserError(
                f"document {document}: router logits of type {parts[-1][0].dtype}; a trace holds float32, run the model in float32"
            )
    lengths = [len(part[0]) for part in parts]
    tensors: dict[str, Any] = {"document": np.repeat(np.asarray([one for one, _ in documents], dtype=np.int32), lengths)}
    for layer in range(meta["layers"]):
        z = np.ascontiguousarray(np.concatenate([part[layer] for part in parts]))
        tensors.update(zip((f"{name}.{layer}" for name in ("ids", "z", "lse", "zmin")), _ranked(z, layer, meta), strict=True))
    about = TraceMeta(
        layers=meta["layers"], experts=int(meta["experts"]), top_k=meta["top_k"], depth=depth_of(meta), tokens=sum(lengths), gating=meta["gating"],
        normalise=meta["normalise"], scale=meta["scale"], bias=meta["bias"], groups=meta["groups"], domains=[], sources={}, split="", model="",
        model_revision="", tokenizer_revision="", dtype="float32", corpus="", corpus_digest="", software={}, labels={},
    )  # fmt: skip
    return Trace(Path("recorded router logits"), about, tensors)


def open_loop(
    logits: Sequence[NDArray[Any]], rows: Sequence[Row], counts: NDArray[np.int64], document: int, meta: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Meters, summed over layers, of every row over the recorded logits of one document.

    Args:
        logits: router logits of a row by layer, [T, E] each.
        counts: int64 [L, E] requests in the calibration split.
        document: its id, part of every random draw.
        meta: :attr:`~expertmiss.emulate.emulator.Emulator.meta`.
    """
    layers = [_ranked(z, layer, meta) for layer, z in enumerate(logits)]
    documents = np.full(len(logits[0]), document, dtype=np.int32)
    known = {**meta, "depth": depth_of(meta)}
    found = []
    for row in rows:
        result = _core.simulate(layers, documents, known, row.policy, row.capacity, counts, row.seed, False, kl=True, threads=1)
        meters: Mapping[str, Any] = result["meters"]
        found.append({name: values.sum() for name, values in meters.items()})
    return found


def depth_of(meta: Mapping[str, Any]) -> int:
    """Experts that can be ranked: all, or those of the allowed groups."""
    experts, groups = int(meta["experts"]), meta["groups"]
    return experts if groups is None else experts // int(groups["count"]) * int(groups["allowed"])


def _ranked(z: NDArray[Any], layer: int, meta: Mapping[str, Any]) -> Any:
    bias = None if meta["bias"] is None else np.asarray(meta["bias"][layer], dtype=np.float64)
    return _core.rank_logits(z, depth_of(meta), top_k=meta["top_k"], gating=meta["gating"], bias=bias, groups=meta["groups"])
