"""Small traces made of random numbers, for tests of readers and stages."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from expertmiss import _core
from expertmiss.traces.format import TraceMeta

LABELS = {
    "substrate": "random_weights",
    "routing": "synthetic",
    "time": "none",
    "host": "test",
    "status": "exploratory",
    "n": {"documents": 3},
    "notes": ["test data"],
}


def random_trace(
    seed: int = 0,
    layers: int = 2,
    experts: int = 16,
    top_k: int = 2,
    depth: int = 8,
    documents: int = 3,
    length: int = 20,
    split: str = "exploratory",
) -> tuple[TraceMeta, dict[str, NDArray[Any]]]:
    """Metadata and tensors of a trace with normal logits and one source a document."""
    generator = np.random.default_rng(seed)
    tokens = documents * length
    tensors: dict[str, NDArray[Any]] = {
        "token": generator.integers(0, 50, tokens).astype(np.int32), "document": np.repeat(np.arange(documents), length).astype(np.int32),
        "domain": np.repeat(np.arange(documents) % 2, length).astype(np.uint8), "topic_change": np.zeros(tokens, np.uint8),
    }  # fmt: skip
    for layer in range(layers):
        ids, z, lse, zmin = _core.rank_logits(generator.normal(size=(tokens, experts)).astype(np.float32), depth=depth)
        tensors |= {f"ids.{layer}": ids, f"z.{layer}": z, f"lse.{layer}": lse, f"zmin.{layer}": zmin}
    meta = TraceMeta(
        layers=layers, experts=experts, top_k=top_k, depth=depth, tokens=tokens, gating="softmax", normalise=True, domains=["even", "odd"],
        sources={str(document): f"source{document}" for document in range(documents)}, split=split, model="random", model_revision="none",
        tokenizer_revision="none", dtype="float32", corpus="random", corpus_digest="none", software={}, labels=dict(LABELS),
    )  # fmt: skip
    return meta, tensors
