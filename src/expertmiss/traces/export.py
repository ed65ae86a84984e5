"""``expertmiss trace export``: a trace's requests in libCacheSim's oracleGeneral format, for cross-checks with another simulator.

One record of 24 bytes a request, little-endian, in serial order (token, layer, rank): uint32 time (the token), uint64 object id
(layer * E + expert), uint32 size (1), int64 serial number of the object's next request, -1 where there is none.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from expertmiss.errors import UserError
from expertmiss.files import atomic_path
from expertmiss.traces.format import Trace

RECORD = np.dtype([("time", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")])


def oracle_general(trace: Trace, layer: int | None = None) -> NDArray[np.void]:
    """Records of all requests, or of one layer's.

    Raises:
        UserError: no such layer.
    """
    meta = trace.meta
    if layer is not None and not 0 <= layer < meta.layers:
        raise UserError(f"--layer {layer}: the trace has layers 0 to {meta.layers - 1}")
    chosen = range(meta.layers) if layer is None else [layer]
    objects = np.stack(
        [trace.layer(index).ids[:, : meta.top_k].astype(np.uint64) + np.uint64(index * meta.experts) for index in chosen], axis=1
    )
    flat = objects.reshape(-1)
    records = np.zeros(len(flat), RECORD)
    records["time"] = np.repeat(np.arange(meta.tokens), len(chosen) * meta.top_k)
    records["object"], records["size"], records["next"] = flat, 1, -1
    order = np.argsort(flat, kind="stable")
    same = flat[order][1:] == flat[order][:-1]
    records["next"][order[:-1][same]] = order[1:][same]
    return records


def export(source: Path, out: Path, layer: int | None = None) -> int:
    """Write the records of the trace ``source`` to ``out``; returns their number."""
    records = oracle_general(Trace.open(source, check_values=True), layer)
    with atomic_path(out) as path:
        records.tofile(path)
    return len(records)
