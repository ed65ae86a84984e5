"""Stage analyze_traces: gate weight by rank, and how soon an expert is asked for again.

Input:  a trace (memory-mapped, one layer at a time).
Output: gate_weight.parquet (+ .csv), by domain and router rank; reuse.parquet (+ .csv), distribution of reuse distances by domain.
Steps:  per layer, per-document sums and counts; then intervals over sources. Tokens are never the unit of an interval.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from expertmiss.errors import UserError
from expertmiss.files import sha256_file
from expertmiss.progress import Progress
from expertmiss.provenance import Labels, write_run
from expertmiss.stages import Context
from expertmiss.stats.bootstrap import ClusterBootstrap, ratio
from expertmiss.stats.measures import ALL, HEAVY
from expertmiss.stats.reuse import reuse_distances
from expertmiss.stats.tables import with_sample, write_table
from expertmiss.traces.format import Trace

STAGE = "analyze_traces"
BINS = 4096  # quantiles of a weight are exact to 1/BINS, at any number of tokens
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


def run(cfg: dict[str, Any], *, trace: Path, out: Path, context: Context) -> None:
    """Write the tables and ``run.json`` into ``out``; ``cfg``: ``stats`` (``resamples``, ``confidence``, ``seed``, ``min_clusters``).

    Raises:
        UserError: the trace cannot be read, or holds values a trace may not hold.
    """
    started, begun = datetime.now(UTC), time.monotonic()
    opened = Trace.open(trace, check_values=True)
    meta = opened.meta
    documents = Documents(opened)
    weights = WeightCounts(documents, meta.top_k)
    reuse = ReuseCounts(documents, meta.experts)
    with Progress(meta.layers, "gate weights and reuse", "layer", context.journal) as progress:
        for index in range(meta.layers):
            layer = opened.layer(index)
            weights.add(gate_weights(layer.z[:, : meta.top_k], meta.gating))
            reuse.add(layer.ids[:, : meta.top_k])
            progress.update()

    groups = list(documents.groups(cfg["stats"]))
    about: dict[str, Any] = {
        "model": meta.model,
        "corpus": meta.corpus,
        "split": meta.split,
        "layers": meta.layers,
        "experts": meta.experts,
        "top_k": meta.top_k,
        "confidence": cfg["stats"]["confidence"],
    }
    sample = {"documents": len(documents.ids), "sources": len(set(documents.sources)), "tokens": meta.tokens}
    labels = with_sample(Labels.of({**meta.labels, "n": {"tokens": meta.tokens}}), sample)
    sources = {trace.name: sha256_file(trace)}
    weight_rows, reuse_rows = weights.rows(groups), reuse.rows(groups)
    outputs = write_table(out / "gate_weight.parquet", weight_rows.assign(**about), labels, sources)
    outputs += write_table(out / "reuse.parquet", reuse_rows.assign(**about), labels, sources)
    overall = weight_rows.loc[weight_rows["domain"] == ALL, "mean"].tolist()
    metrics = {f"gate_weight/rank{rank}": mean for rank, mean in enumerate(overall)} | {
        "cold_share": float(reuse_rows["cold_share"].iloc[0])
    }
    write_run(
        out, stage=STAGE, experiment=context.experiment, name=f"routing of {meta.model} on {meta.corpus} {meta.split}", config=cfg,
        source_hash=context.source_hash, inputs=[trace], outputs=outputs, artifacts=[path for path in outputs if path.suffix == ".csv"],
        metrics=metrics, timings={"total": time.monotonic() - begun}, labels=labels, started=started,
    )  # fmt: skip


class Documents:
    """Documents of a trace in order: ids, sources, domains, and where their rows begin."""

    def __init__(self, trace: Trace) -> None:
        self.starts = np.flatnonzero(np.diff(trace.document, prepend=trace.document[0] - 1))
        self.lengths = np.diff(self.starts, append=len(trace.document))
        self.ids = trace.document[self.starts]
        if len(np.unique(self.ids)) != len(self.ids):
            raise UserError(f"{trace.path}: a document stands in two separate places; capture the trace again")
        self.domain = trace.domain[self.starts].astype(np.int64)
        self.names = list(trace.meta.domains)
        self.sources = np.array([trace.source(int(document)) for document in self.ids])

    def groups(self, options: dict[str, Any]) -> Iterator[tuple[str, NDArray[np.intp], ClusterBootstrap]]:
        """(name, documents, bootstrap) for all documents, then for each domain that occurs."""
        present = np.unique(self.domain)
        everything = np.arange(len(self.ids))
        chosen = [(ALL, everything), *((self.names[index], everything[self.domain == index]) for index in present)]
        for name, members in chosen:
            yield name, members, ClusterBootstrap(self.sources[members], **options)

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums over each document's rows, [T, ...] to [D, ...]."""
        return np.add.reduceat(values, self.starts, axis=0)


def gate_weights(z: NDArray[np.float32], gating: str) -> NDArray[np.float64]:
    """Gate weight w of the chosen experts [T, K] from their logits, normalised over each row.

    Numpy's exp, not the policy core's: for tables only, decisions never use it.
    """
    wide = z.astype(np.float64)
    parts = 1 / (1 + np.exp(-wide)) if gating == "sigmoid" else np.exp(wide - wide.max(axis=1, keepdims=True))
    result: NDArray[np.float64] = parts / parts.sum(axis=1, keepdims=True)
    return result


class WeightCounts:
    """Sums and histograms of w by document, domain and rank, accumulated over layers."""

    def __init__(self, documents: Documents, top_k: int) -> None:
        self.documents, self.top_k = documents, top_k
        self.sum = np.zeros((len(documents.ids), top_k))
        self.heavy = np.zeros((len(documents.ids), top_k))
        self.rows_seen = np.zeros(len(documents.ids))
        self.histogram = np.zeros((len(documents.names), top_k, BINS), dtype=np.int64)

    def add(self, weights: NDArray[np.float64]) -> None:
        """Count one layer's weights [T, K]."""
        self.sum += self.documents.sums(weights)
        self.heavy += self.documents.sums((weights >= HEAVY).astype(np.float64))
        self.rows_seen += self.documents.lengths
        domain = np.repeat(self.documents.domain, self.documents.lengths)
        cell = domain[:, None] * self.top_k + np.arange(self.top_k)
        bins = np.minimum((weights * BINS).astype(np.int64), BINS - 1)
        self.histogram += np.bincount((cell * BINS + bins).ravel(), minlength=self.histogram.size).reshape(self.histogram.shape)

    def rows(self, groups: list[tuple[str, NDArray[np.intp], ClusterBootstrap]]) -> pd.DataFrame:
        """One row a domain and rank (0 is the first choice): mean with interval, quantiles over token-layers, share with w >= HEAVY."""
        found = []
        for name, members, bootstrap in groups:
            seen = np.broadcast_to(self.rows_seen[members, None], (len(members), self.top_k))
            mean = bootstrap.interval(ratio, np.stack([self.sum[members], seen], axis=1))
            heavy = bootstrap.interval(ratio, np.stack([self.heavy[members], seen], axis=1))
            histogram = self.histogram.sum(axis=0) if name == ALL else self.histogram[self.documents.names.index(name)]
            quantiles = _quantiles(histogram)
            found.append(pd.DataFrame({
                "domain": name, "rank": np.arange(self.top_k), "mean": mean.estimate, "low": mean.low, "high": mean.high,
                **{f"q{round(100 * level)}": quantiles[index] for index, level in enumerate(QUANTILES)},
                "heavy_share": heavy.estimate, "heavy_low": heavy.low, "heavy_high": heavy.high,
                "token_layers": seen.sum(axis=0).astype(np.int64), "documents": len(members),
                "clusters": mean.clusters, "reliable": mean.reliable,
            }))  # fmt: skip
        return pd.concat(found, ignore_index=True)


def _quantiles(histogram: NDArray[np.int64]) -> NDArray[np.float64]:
    """``QUANTILES`` [Q, K] of weights counted in ``histogram`` [K, BINS]: the middle of the bin that holds the quantile."""
    share = histogram.cumsum(axis=1) / histogram.sum(axis=1, keepdims=True)
    return np.array([((share < level).sum(axis=1) + 0.5) / BINS for level in QUANTILES])


class ReuseCounts:
    """Reuse distances by document, accumulated over layers (each layer is a pool of its own)."""

    def __init__(self, documents: Documents, experts: int) -> None:
        self.documents, self.experts = documents, experts
        # Between two uses of an expert lie 0 to E - 1 others; token distances are 1 to length - 1.
        self.bins = {"experts": experts, "tokens": int(documents.lengths.max())}
        self.counts = {unit: np.zeros((len(documents.ids), size)) for unit, size in self.bins.items()}
        self.requests = np.zeros(len(documents.ids))
        self.cold = np.zeros(len(documents.ids))

    def add(self, ids: NDArray[np.uint16]) -> None:
        """Count one layer's requests [T, K]."""
        for length in np.unique(self.documents.lengths):
            members = np.flatnonzero(self.documents.lengths == length)
            rows = self.documents.starts[members, None] + np.arange(length)
            stack, tokens = reuse_distances(ids[rows].astype(np.intp), self.experts)
            reused = stack >= 0
            of = np.broadcast_to(members[:, None, None], stack.shape)[reused]
            for unit, distance in (("experts", stack), ("tokens", tokens)):
                size = self.bins[unit]
                flat = np.bincount(of * size + distance[reused], minlength=self.counts[unit].size)
                self.counts[unit] += flat.reshape(self.counts[unit].shape)
            self.requests[members] += stack[0].size
            self.cold[members] += (~reused).sum(axis=(1, 2))

    def rows(self, groups: list[tuple[str, NDArray[np.intp], ClusterBootstrap]]) -> pd.DataFrame:
        """One row a domain, unit and distance: share of reuses at most that far, with interval; first uses are counted apart (``cold``)."""
        found = []
        for name, members, bootstrap in groups:
            cold = bootstrap.interval(ratio, np.stack([self.cold[members], self.requests[members]], axis=1))
            for unit, size in self.bins.items():
                counts = self.counts[unit][members]
                total = np.broadcast_to(counts.sum(axis=1, keepdims=True), counts.shape)
                share = bootstrap.interval(ratio, np.stack([counts.cumsum(axis=1), total], axis=1))
                found.append(pd.DataFrame({
                    "domain": name, "unit": unit, "distance": np.arange(size), "reuses": counts.sum(axis=0).astype(np.int64),
                    "share": share.estimate, "low": share.low, "high": share.high,
                    "requests": int(self.requests[members].sum()), "cold": int(self.cold[members].sum()),
                    "cold_share": float(cold.estimate), "cold_low": float(cold.low), "cold_high": float(cold.high),
                    "documents": len(members), "clusters": cold.clusters, "reliable": cold.reliable,
                }))  # fmt: skip
        return pd.concat(found, ignore_index=True)
