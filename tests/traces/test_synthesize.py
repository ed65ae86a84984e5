"""Synthetic traces: the stated miss rate, the real trace's weights, labels; and the export to another simulator's format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from expertmiss import policies
from expertmiss.errors import UserError
from expertmiss.traces.export import RECORD, export
from expertmiss.traces.format import Trace, write_trace
from expertmiss.traces.synthesize import FETCH_ALL, Geometry, synthesize
from tests.traces.traces_for_tests import random_trace

SHAPE = Geometry(layers=4, experts=128, top_k=6, depth=64, documents=12, length=256, topics=4)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("real") / "real.safetensors"
    write_trace(path, *random_trace(layers=2, experts=64, top_k=4, depth=32, documents=6, length=128))
    return path


@pytest.mark.parametrize("miss_rate", [0.085, 0.25])
def test_the_stated_lru_miss_rate_is_reached(real: Path, tmp_path: Path, miss_rate: float) -> None:
    out = tmp_path / "synthetic.safetensors"
    synthesize(real, out, SHAPE, miss_rate, 0.25, seed=3)
    trace = Trace.open(out, check_values=True)
    meters = policies.simulate(trace, FETCH_ALL, 32, counts=policies.request_counts(trace))
    assert abs(meters["fetches"].sum() / meters["calls"].sum() - miss_rate) <= 0.005


def test_it_says_that_it_is_synthetic_and_keeps_the_real_weights(real: Path, tmp_path: Path) -> None:
    out = tmp_path / "synthetic.safetensors"
    synthesize(real, out, SHAPE, 0.2, 0.25, seed=3)
    trace, source = Trace.open(out), Trace.open(real)
    assert trace.meta.labels["routing"] == "synthetic" and "no language model" in trace.meta.labels["notes"][0]
    # Relative rank 0.25 of E: rank 32 of 128 here, rank 16 of 64 in the real trace; the gap to rank 0 has the same mean.
    here = np.mean([(layer.z[:, 0] - layer.z[:, 32]).mean() for layer in trace.layers])
    there = np.mean([(layer.z[:, 0] - layer.z[:, 16]).mean() for layer in source.layers])
    assert abs(here / there - 1) < 0.02


def test_the_same_seed_gives_the_same_bytes(real: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        synthesize(real, tmp_path / name, SHAPE, 0.2, 0.25, seed=5)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("rate", "shape", "message"),
    [(0.0, SHAPE, "between 0 and 1"), (0.97, SHAPE, "out of reach"), (0.1, Geometry(experts=8, top_k=10), "1 <= K <= depth <= E")],
)
def test_impossible_requests_are_refused(real: Path, tmp_path: Path, rate: float, shape: Geometry, message: str) -> None:
    with pytest.raises(UserError, match=message):
        synthesize(real, tmp_path / "none", shape, rate, 0.25, seed=0)
    assert not (tmp_path / "none").exists()


def test_exported_requests_are_serial_and_know_their_next_use(real: Path, tmp_path: Path) -> None:
    trace = Trace.open(real)
    assert export(real, tmp_path / "all.bin") == 6 * 128 * 2 * 4
    records = np.fromfile(tmp_path / "all.bin", RECORD)
    assert RECORD.itemsize == 24
    first = [layer * 64 + int(expert) for layer in range(2) for expert in trace.layer(layer).ids[0, :4]]
    assert records["object"][:8].tolist() == first and set(records["time"][:8]) == {0}
    for place in (0, 5, 17, 900):
        later = np.flatnonzero(records["object"][place + 1 :] == records["object"][place])
        assert records["next"][place] == (place + 1 + later[0] if len(later) else -1)


def test_one_layer_can_be_exported_and_a_missing_one_cannot(real: Path, tmp_path: Path) -> None:
    assert export(real, tmp_path / "one.bin", layer=1) == 6 * 128 * 4
    assert np.fromfile(tmp_path / "one.bin", RECORD)["object"].min() >= 64
    with pytest.raises(UserError, match="--layer 2: the trace has layers 0 to 1"):
        export(real, tmp_path / "none.bin", layer=2)
