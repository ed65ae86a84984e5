"""``expertmiss trace info``: what a trace holds, in a page of text."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from expertmiss.traces.format import Trace


def describe(path: Path) -> str:
    """Check every value of the trace and describe it.

    Raises:
        UserError: the file is foreign, truncated, or holds values a trace may not hold.
    """
    trace = Trace.open(path, check_values=True)
    meta = trace.meta
    documents = np.unique(trace.document)
    lines = [
        f"{path} ({path.stat().st_size / 2**20:.1f} MiB)",
        f"model      {meta.model} (revision {meta.model_revision[:12]}, {meta.dtype})",
        f"geometry   {meta.layers} MoE layers, {meta.experts} experts, top-{meta.top_k}, {meta.gating}{', normalised' if meta.normalise else ''}; depth {meta.depth}",
        f"text       corpus {meta.corpus}, split {meta.split}: {len(documents)} documents from {len(set(meta.sources.values()))} sources, {meta.tokens:,} tokens",
        f"labels     {', '.join(f'{key}={value}' for key, value in sorted(meta.labels.items()))}",
    ]
    for index, name in enumerate(meta.domains):
        tokens = int((trace.domain == index).sum())
        if tokens:
            lines.append(f"  {name:<16} {tokens:>9,} tokens, {len(np.unique(trace.document[trace.domain == index])):>4} documents")
    lines.append("layer      most used expert (share of tokens)   experts used   weight of rank 0 (mean over S)")
    for index, layer in enumerate(trace.layers):
        ids = layer.ids[:, : meta.top_k].astype(np.int64)
        load = np.bincount(ids.ravel(), minlength=meta.experts)
        weights = np.exp(layer.z[:, : meta.top_k].astype(np.float64) - layer.z[:, :1])
        first = (weights[:, 0] / weights.sum(axis=1)).mean() if meta.gating != "sigmoid" else float("nan")
        lines.append(
            f"  {index:>3}      {int(load.argmax()):>6} ({load.max() / meta.tokens:6.1%}) {'':<19} {int((load > 0).sum()):>4}/{meta.experts:<4}      {first:.3f}"
        )
    lines.append(f"ranked set differs from the framework's top-{meta.top_k}: {meta.set_mismatches} token-layers")
    return "\n".join(lines)
