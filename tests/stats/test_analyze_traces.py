"""Stage analyze_traces: reuse distances and gate weights against naive computations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_study import DOMAINS, EXPERTS, LAYERS, TOKENS, TOP_K, write_synthetic_trace

from expertmiss.files import read_json
from expertmiss.stages import Context
from expertmiss.stats.reuse import reuse_distances
from expertmiss.stats.tables import read_table
from expertmiss.stats.traces import BINS, HEAVY, gate_weights, run
from expertmiss.traces.format import Trace

pytestmark = pytest.mark.filterwarnings("error")
CFG = {"stats": {"resamples": 200, "confidence": 0.95, "seed": 1, "min_clusters": 40}}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace") / "results"
    path = write_synthetic_trace(folder / "trace" / "trace.safetensors")
    run(CFG, trace=path, out=folder / "analysis", context=Context("test", "0" * 64))
    return Trace.open(path), folder / "analysis"


def test_hand_counted_distances():
    #  tokens:        (0,1)  (1,2)  (3,0)  (0,3)
    ids = np.array([[[0, 1], [1, 2], [3, 0], [0, 3]]])
    stack, tokens = reuse_distances(ids, 4)
    assert stack[0].tolist() == [[-1, -1], [0, -1], [-1, 3], [0, 1]]
    assert tokens[0].tolist() == [[-1, -1], [1, -1], [-1, 2], [1, 1]]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 12), st.integers(1, 4), st.integers(4, 9))
def test_distances_equal_a_naive_lru_stack(seed, streams, tokens, top_k, experts):
    generator = np.random.default_rng(seed)
    ids = np.argsort(generator.random((streams, tokens, experts)), axis=2)[:, :, :top_k]
    stack, in_tokens = reuse_distances(ids, experts)
    for stream in range(streams):
        recent: list[int] = []
        seen: dict[int, int] = {}
        for token in range(tokens):
            for rank in range(top_k):
                expert = int(ids[stream, token, rank])
                assert stack[stream, token, rank] == (recent.index(expert) if expert in recent else -1)
                assert in_tokens[stream, token, rank] == (token - seen[expert] if expert in seen else -1)
                recent = [expert, *(other for other in recent if other != expert)]
                seen[expert] = token


@pytest.mark.parametrize("gating", ["softmax", "softmax_after_topk", "sigmoid"])
def test_weights_are_normalised_over_the_chosen(gating):
    z = np.array([[2.0, 1.0, -1.0], [900.0, 899.0, 0.0]], dtype=np.float32)
    weights = gate_weights(z[:1] if gating == "sigmoid" else z, gating)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    parts = 1 / (1 + np.exp(-z[0].astype(float))) if gating == "sigmoid" else np.exp(z[0].astype(float))
    np.testing.assert_allclose(weights[0], parts / parts.sum(), rtol=1e-12)


def test_gate_weight_table_equals_direct_computation(study):
    trace, out = study
    table = read_table(out / "gate_weight.parquet").frame
    assert sorted(table["domain"].unique()) == sorted(["all", *DOMAINS])
    weights = np.concatenate([gate_weights(layer.z[:, :TOP_K], "softmax") for layer in trace.layers])
    domain = np.tile(trace.domain, LAYERS)
    for name, chosen in [("all", weights), *((name, weights[domain == index]) for index, name in enumerate(DOMAINS))]:
        rows = table[table["domain"] == name]
        np.testing.assert_allclose(rows["mean"], chosen.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(rows["heavy_share"], (chosen >= HEAVY).mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(
            rows[["q10", "q50", "q90"]].T, np.quantile(chosen, [0.1, 0.5, 0.9], axis=0, method="inverted_cdf"), atol=0.51 / BINS
        )
        assert set(rows["token_layers"]) == {len(chosen)}
    assert set(table.loc[table["domain"] == "all", "reliable"]) == {"yes"}
    assert set(table.loc[table["domain"] == "code", "reliable"]) == {"inconclusive: n clusters < 40"}


def test_reuse_table_counts_every_request_once(study):
    trace, out = study
    table = read_table(out / "reuse.parquet").frame
    requests = trace.meta.tokens * LAYERS * TOP_K
    for unit in ("experts", "tokens"):
        rows = table[(table["domain"] == "all") & (table["unit"] == unit)]
        assert rows["reuses"].sum() + rows["cold"].iloc[0] == rows["requests"].iloc[0] == requests
        assert rows["share"].is_monotonic_increasing and rows["share"].iloc[-1] == 1
        assert (rows["low"] <= rows["share"] + 1e-12).all() and (rows["share"] <= rows["high"] + 1e-12).all()
        parts = table[(table["domain"] != "all") & (table["unit"] == unit)]
        assert parts["reuses"].sum() == rows["reuses"].sum()
    assert table["distance"].max() == max(EXPERTS, TOKENS) - 1
    # First uses: one per expert seen, document and layer.
    first = sum(
        len(np.unique(layer.ids[trace.document == document, :TOP_K])) for layer in trace.layers for document in np.unique(trace.document)
    )
    assert table["cold"].max() == first


def test_labels_come_from_the_trace(study):
    trace, out = study
    table = read_table(out / "reuse.parquet")
    assert table.labels.routing == "synthetic" and table.labels.n == {"documents": 44, "sources": 44, "tokens": trace.meta.tokens}
    assert read_json(out / "run.json")["stage"] == "analyze_traces"
