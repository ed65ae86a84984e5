"""``expertmiss trace synthesize``: a trace of another geometry from a documented process, fitted to a real trace.

The process, per layer and document. Every document belongs to one of ``topics`` topics; a topic gives each expert a fixed preference
``u[e]`` (standard normal, drawn once per topic and layer). At token ``t`` expert ``e`` has the score

    g[e] = b u[e] + a r[e](t) + noise[e](t),    r[e] <- decay r[e], and 1 for the experts that were just requested

with standard Gumbel noise, so that the K requested experts are a draw without replacement from softmax(b u + a r). Three numbers are fitted:

* ``decay`` from the real trace: the median reuse distance in tokens is a half-life of the recency trace;
* ``b``, the topic share: the standard deviation of log request counts over experts within a domain of the real trace;
* ``a``, the recency strength, by bisection so that an LRU cache of C experts misses at the stated rate (cold start per document left out:
  the rate is counted as the simulator counts it, from the warm initial state).

The scores only rank; logits come from the real trace: a row's ranked logit gaps ``z_0 - z_r`` are those of a real row drawn at random, read at the
same relative rank r / E. Weights by rank therefore follow the real model. What it is not: a language model. Provenance ``synthetic``.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expertmiss import _core
from expertmiss.errors import UserError
from expertmiss.files import sha256_file
from expertmiss.progress import Progress
from expertmiss.simulate.capacity import resident_experts
from expertmiss.traces.format import Layer, Trace, TraceMeta, write_trace

TOLERANCE = 0.005
PILOT_DOCUMENTS, PILOT_LAYERS = 6, 4
FETCH_ALL = {"name": "fetch_all", "miss_rule": {"name": "fetch_all"}, "eviction": {"name": "lru"}, "admission": {"name": "fetched_only"}}


@dataclass(frozen=True)
class Geometry:
    """Shape of the synthetic trace: ``documents`` of ``length`` tokens, ``layers`` of ``experts``, ``top_k`` requested, ``depth`` recorded."""

    layers: int = 48
    experts: int = 512
    top_k: int = 10
    depth: int = 128
    documents: int = 40
    length: int = 512
    topics: int = 8


@dataclass(frozen=True)
class Process:
    """Fitted parameters of the process (module docstring): ``decay`` per token, topic spread ``b``, recency strength ``a``."""

    decay: float
    topic: float
    recency: float


def synthesize(source: Path, out: Path, geometry: Geometry, miss_rate: float, residency: float, seed: int) -> dict[str, float]:
    """Write a synthetic trace whose LRU miss rate at ``residency`` is ``miss_rate`` within half a point.

    Args:
        source: a real trace, to fit the process to.
        out: the trace to write.
        miss_rate: share of calls that miss in an LRU cache, 0 < rate < 1.
        residency: resident share of experts at which the rate holds.
        seed: of all draws.

    Returns:
        The fitted parameters and the rate that was reached.

    Raises:
        UserError: the geometry is impossible, or no recency strength reaches the rate.
    """
    if not 0 < miss_rate < 1:
        raise UserError(f"--miss-rate {miss_rate:g}: use a share between 0 and 1")
    if not 1 <= geometry.top_k <= geometry.depth <= geometry.experts:
        raise UserError(
            f"geometry: 1 <= K <= depth <= E must hold, got K = {geometry.top_k}, depth = {geometry.depth}, E = {geometry.experts}"
        )
    capacity = resident_experts(residency, geometry.experts, geometry.top_k)
    real = Trace.open(source, check_values=True)
    decay, topic = fit(real)
    gaps = _gap_profiles(real, geometry.depth, geometry.experts)
    pilot = replace(geometry, documents=min(geometry.documents, PILOT_DOCUMENTS), layers=min(geometry.layers, PILOT_LAYERS))

    def reached(shape: Geometry, process: Process, bar: Progress | None = None) -> tuple[float, dict[str, NDArray[Any]]]:
        tensors = generate(shape, process, gaps, seed, bar)
        return lru_miss_rate(shape, tensors, capacity), tensors

    low, high = 0.0, 40.0
    with Progress(14, "fit the miss rate", "step") as bar:
        if reached(pilot, Process(decay, topic, high))[0] > miss_rate or reached(pilot, Process(decay, topic, low))[0] < miss_rate:
            raise UserError(
                f"--miss-rate {miss_rate:g}: out of reach at residency {residency:g} for this geometry; try a rate nearer to the real trace's"
            )
        for _ in range(14):
            middle = (low + high) / 2
            low, high = (middle, high) if reached(pilot, Process(decay, topic, middle))[0] > miss_rate else (low, middle)
            bar.update()
    process = Process(decay, topic, (low + high) / 2)
    # The pilot is small: the whole trace is generated until its own rate is within tolerance, each time from a corrected target.
    step = 0.4
    for _ in range(6):
        with Progress(geometry.documents * geometry.length, "synthesize", "tok") as bar:
            rate, tensors = reached(geometry, process, bar)
        if abs(rate - miss_rate) <= TOLERANCE:
            break
        process = replace(
            process, recency=max(0.0, process.recency * (1 + step * np.sign(rate - miss_rate) * min(1.0, abs(rate / miss_rate - 1))))
        )
    else:
        raise UserError(f"--miss-rate {miss_rate:g}: reached {rate:.4f} and no nearer; use more documents or another seed")
    found = {
        "decay": decay,
        "topic": topic,
        "recency": process.recency,
        "lru_miss_rate": rate,
        "stated_miss_rate": miss_rate,
        "residency": residency,
    }
    write_trace(out, _meta(real, source, geometry, found, seed), tensors)
    return found


def fit(real: Trace) -> tuple[float, float]:
    """``decay`` and ``b`` of the process from a real trace (module docstring)."""
    meta = real.meta
    distances, spreads = [], []
    starts = np.flatnonzero(np.diff(real.document, prepend=real.document[0] - 1))
    for layer in real.layers:
        ids = layer.ids[:, : meta.top_k].astype(np.int64)
        for begin, end in zip(starts, [*starts[1:], meta.tokens], strict=True):
            last = np.full(meta.experts, -1)
            for t in range(begin, end):
                seen = last[ids[t]]
                distances.append(t - seen[seen >= 0])
                last[ids[t]] = t
        for domain in np.unique(real.domain):
            counts = np.bincount(ids[real.domain == domain].ravel(), minlength=meta.experts)
            spreads.append(np.log(counts[counts > 0] + 0.5).std())
    half_life = max(1.0, float(np.median(np.concatenate(distances))))
    return 0.5 ** (1 / half_life), float(np.mean(spreads))


def generate(
    shape: Geometry, process: Process, gaps: NDArray[np.float32], seed: int, bar: Progress | None = None
) -> dict[str, NDArray[Any]]:
    """Tensors of a trace: documents one after another, all layers at once. ``gaps`` [n, depth + 1]: falling logit gaps, the last the smallest."""
    layers, experts, k, depth = shape.layers, shape.experts, shape.top_k, shape.depth
    topics = np.random.default_rng([seed, 0]).normal(size=(shape.topics, layers, experts)).astype(np.float32) * process.topic
    total = shape.documents * shape.length
    ids = np.empty((layers, total, depth), np.uint16)
    rows = np.empty((layers, total), np.int64)
    for document in range(shape.documents):
        generator = np.random.default_rng([seed, 1, document])
        preference = topics[document % shape.topics]
        recent = np.zeros((layers, experts), np.float32)
        rows[:, document * shape.length : (document + 1) * shape.length] = generator.integers(0, len(gaps), (layers, shape.length))
        for t in range(document * shape.length, (document + 1) * shape.length):
            noise = -np.log(generator.exponential(size=(layers, experts)).astype(np.float32) + np.float32(1e-30))
            score = preference + process.recency * recent + noise
            ranked = np.argsort(-score, axis=1)[:, :depth]
            ids[:, t] = ranked
            recent *= process.decay
            np.put_along_axis(recent, ranked[:, :k], 1.0, axis=1)
        if bar is not None:
            bar.update(shape.length)
    tensors: dict[str, NDArray[Any]] = {
        "token": np.zeros(total, np.int32), "document": np.repeat(np.arange(shape.documents, dtype=np.int32), shape.length),
        "domain": np.repeat((np.arange(shape.documents) % shape.topics).astype(np.uint8), shape.length), "topic_change": np.zeros(total, np.uint8),
    }  # fmt: skip
    for layer in range(layers):
        chosen = gaps[rows[layer]]
        # Ranked rows are stored by falling logit with ties to the lower id: sort the ids of equal logits.
        z, order = -chosen[:, :depth], ids[layer]
        ties = np.lexsort((order, -z), axis=1)
        tail = np.exp(-chosen[:, -1].astype(np.float64)) * (experts - depth)
        tensors[f"ids.{layer}"] = np.take_along_axis(order, ties, axis=1)
        tensors[f"z.{layer}"] = np.ascontiguousarray(z)
        tensors[f"lse.{layer}"] = np.log(np.exp(z.astype(np.float64)).sum(axis=1) + tail)
        tensors[f"zmin.{layer}"] = -chosen[:, -1]
    return tensors


def lru_miss_rate(shape: Geometry, tensors: dict[str, NDArray[Any]], capacity: int) -> float:
    """Share of calls that miss under fetch_all and LRU at ``capacity``, from the warm state of the trace's own counts."""
    layers = [Layer(*(tensors[f"{name}.{layer}"] for name in Layer._fields)) for layer in range(shape.layers)]
    geometry = {
        "layers": shape.layers, "experts": shape.experts, "top_k": shape.top_k, "depth": shape.depth, "gating": "softmax", "normalise": True,
        "scale": 1.0, "bias": None, "groups": None,
    }  # fmt: skip
    counts = np.stack([_core.request_counts(layer[0], shape.top_k, shape.experts) for layer in layers])
    result = _core.simulate(layers, tensors["document"], geometry, FETCH_ALL, capacity, counts, kl=False)
    return float(result["meters"]["fetches"].sum() / result["meters"]["calls"].sum())


def _gap_profiles(real: Trace, depth: int, experts: int, most: int = 4096) -> NDArray[np.float32]:
    """Real rows' gaps z_0 - z_r read at the relative ranks of the new geometry, and z_0 - zmin last; [n, depth + 1], rising along a row."""
    meta = real.meta
    generator = np.random.default_rng(0)
    place = np.minimum(np.arange(depth) * (meta.experts / experts), meta.depth - 1)
    profiles = []
    for layer in real.layers:
        chosen = np.sort(generator.choice(meta.tokens, min(most // meta.layers + 1, meta.tokens), replace=False))
        gap = layer.z[chosen, :1] - layer.z[chosen]
        below = np.floor(place).astype(int)
        above = np.minimum(below + 1, meta.depth - 1)
        read = gap[:, below] + (gap[:, above] - gap[:, below]) * (place - below).astype(np.float32)
        last = np.maximum((layer.z[chosen, 0] - layer.zmin[chosen])[:, None], read[:, -1:])
        profiles.append(np.concatenate([read, last], axis=1))
    return np.concatenate(profiles).astype(np.float32)


def _meta(real: Trace, source: Path, geometry: Geometry, found: dict[str, float], seed: int) -> TraceMeta:
    labels = {
        **real.meta.labels, "routing": "synthetic", "time": "none", "status": "exploratory",
        "n": {"documents": geometry.documents, "tokens": geometry.documents * geometry.length},
        "notes": [f"synthetic routing fitted to a trace of {real.meta.model}; no language model"],
    }  # fmt: skip
    return TraceMeta(
        layers=geometry.layers, experts=geometry.experts, top_k=geometry.top_k, depth=geometry.depth, tokens=geometry.documents * geometry.length,
        gating="softmax", normalise=True, domains=[f"topic{index}" for index in range(geometry.topics)],
        sources={str(document): f"synthetic:{document}" for document in range(geometry.documents)}, split="exploratory",
        model=f"synthetic_like_{real.meta.model}", model_revision=sha256_file(source), tokenizer_revision="none", dtype="float32", corpus="synthetic_routing",
        corpus_digest="none", software={"expertmiss": importlib.metadata.version("expertmiss")}, labels=labels, extra={"process": found, "seed": seed},
    )  # fmt: skip
