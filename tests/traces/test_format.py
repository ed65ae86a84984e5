"""Trace files: what is written is read back, and nothing else is accepted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from expertmiss.errors import UserError
from expertmiss.files import atomic_path
from expertmiss.traces.format import Trace, write_trace
from expertmiss.traces.info import describe
from tests.traces.traces_for_tests import random_trace


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "trace.safetensors"
    write_trace(path, *random_trace())
    return path


def test_round_trip(good: Path) -> None:
    meta, tensors = random_trace()
    trace = Trace.open(good, check_values=True)
    assert trace.meta == meta
    for index, layer in enumerate(trace.layers):
        for name in layer._fields:
            np.testing.assert_array_equal(getattr(layer, name), tensors[f"{name}.{index}"])
    np.testing.assert_array_equal(trace.document, tensors["document"])
    assert trace.source(1) == "source1"


def test_tensors_are_views_of_the_file(good: Path) -> None:
    layer = Trace.open(good).layer(0)
    assert not layer.z.flags.owndata and not layer.z.flags.writeable


def test_info_describes(good: Path) -> None:
    text = describe(good)
    assert "2 MoE layers, 16 experts, top-2, softmax" in text and "3 documents from 3 sources, 60 tokens" in text


@pytest.mark.parametrize("keep", [0, 5, 15, 400, -1, -1000])
def test_truncated_files_are_refused(good: Path, tmp_path: Path, keep: int) -> None:
    path = tmp_path / "cut.safetensors"
    path.write_bytes(good.read_bytes()[:keep])
    with pytest.raises(UserError, match=r"not a trace file|truncated") as caught:
        Trace.open(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_foreign_safetensors_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "foreign.safetensors"
    save_file({"weight": np.zeros(3, np.float32)}, path)
    with pytest.raises(UserError, match="not an expertmiss trace"):
        Trace.open(path)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        Trace.open(tmp_path / "none.safetensors")


def spoil(tensors: dict[str, NDArray[Any]], name: str, place: tuple[int, ...], value: float) -> None:
    tensors[name] = tensors[name].copy()
    tensors[name][place] = value


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("z.1", (7, 3), np.nan, r"'z\.1' holds a value that is not finite at token 7"),
        ("lse.0", (59,), np.inf, r"'lse\.0' holds a value that is not finite at token 59"),
        ("zmin.1", (0,), -np.inf, r"'zmin\.1' holds a value that is not finite at token 0"),
        ("ids.0", (4, 2), 16, r"'ids\.0' holds an id out of range"),
        ("domain", (5,), 2, "only 2 domains are named"),
        ("document", (30,), 0, "two separate runs"),
    ],
)
def test_spoiled_values_are_refused(tmp_path: Path, name: str, place: tuple[int, ...], value: float, message: str) -> None:
    meta, tensors = random_trace()
    spoil(tensors, name, place, value)
    path = tmp_path / "spoiled.safetensors"
    write_trace(path, meta, tensors)
    with pytest.raises(UserError, match=message):
        Trace.open(path, check_values=True)


def test_a_repeated_id_in_one_row_is_refused(tmp_path: Path) -> None:
    meta, tensors = random_trace()
    tensors["ids.1"] = tensors["ids.1"].copy()
    tensors["ids.1"][9, 5] = tensors["ids.1"][9, 0]
    write_trace(tmp_path / "t.safetensors", meta, tensors)
    with pytest.raises(UserError, match=r"'ids\.1' holds an id out of range or twice"):
        Trace.open(tmp_path / "t.safetensors", check_values=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": 61}, "expected"),
        ({"top_k": 9}, "inconsistent"),
        ({"gating": "sparsemax"}, "'gating' is 'sparsemax'"),
        ({"schema": 2}, "schema 2"),
        ({"layers": "two"}, "expected an integer"),
        ({"sources": {}}, "lacks document 0"),
    ],
)
def test_metadata_that_disagrees_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    meta, tensors = random_trace()
    for name, value in change.items():
        setattr(meta, name, value)
    write_trace(tmp_path / "t.safetensors", meta, tensors)
    with pytest.raises(UserError, match=message):
        Trace.open(tmp_path / "t.safetensors", check_values=True)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_fuzzed_bytes_never_crash_the_reader(good: Path, tmp_path: Path, data: st.DataObject) -> None:
    """Any bytes: either a trace that passes every check, or one UserError of one line."""
    content = bytearray(good.read_bytes())
    header = 8 + int.from_bytes(content[:8], "little")
    for _ in range(data.draw(st.integers(1, 4))):
        where = data.draw(st.one_of(st.integers(0, 7), st.integers(8, header - 1), st.integers(header, len(content) - 1)))
        content[where] = data.draw(st.integers(0, 255))
    path = tmp_path / "fuzzed.safetensors"
    path.write_bytes(bytes(content))
    try:
        Trace.open(path, check_values=True)
    except UserError as problem:
        assert "\n" not in str(problem)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32 - 1), layers=st.integers(1, 3), experts=st.integers(2, 40), documents=st.integers(1, 4), length=st.integers(1, 9),
    shape=st.tuples(st.floats(0, 1), st.floats(0, 1)), text=st.text(max_size=20), bias=st.booleans(),
)  # fmt: skip
def test_whatever_is_written_is_read_back(
    tmp_path: Path, seed: int, layers: int, experts: int, documents: int, length: int, shape: tuple[float, float], text: str, bias: bool
) -> None:
    depth = 1 + int(shape[0] * (experts - 1))
    meta, tensors = random_trace(seed, layers, experts, 1 + int(shape[1] * (depth - 1)), depth, documents, length)
    meta.model, meta.extra = text, {"note": text}
    meta.bias = [[float(layer)] * experts for layer in range(layers)] if bias else None
    path = tmp_path / "written.safetensors"
    write_trace(path, meta, tensors)
    trace = Trace.open(path, check_values=True)
    assert trace.meta == meta
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(trace._tensors[name], tensor)
        assert trace._tensors[name].dtype == tensor.dtype


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_fuzzed_headers_never_crash_the_reader(good: Path, tmp_path: Path, data: st.DataObject) -> None:
    """A well-formed JSON header with wrong entries is refused in one line."""
    content = good.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    name = data.draw(st.sampled_from([key for key in header if key != "__metadata__"]))
    strange = st.one_of(st.none(), st.integers(-(2**70), 2**70), st.text(max_size=3), st.lists(st.integers(-5, 2**40), max_size=3))
    header[name][data.draw(st.sampled_from(["dtype", "shape", "data_offsets"]))] = data.draw(strange)
    text = json.dumps(header).encode()
    path = tmp_path / "fuzzed.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    try:
        Trace.open(path, check_values=True)
    except UserError as problem:
        assert "\n" not in str(problem)


def swap(tensor: NDArray[Any], row: int, first: int, second: int) -> NDArray[Any]:
    changed = tensor.copy()
    changed[row, [first, second]] = changed[row, [second, first]]
    return changed


def test_rows_out_of_rank_order_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    for biased in (False, True):
        meta, tensors = random_trace()
        meta.bias = [[0.0] * 16] * 2 if biased else None
        tensors |= {name: swap(tensors[name], 7, 2, 5) for name in ("z.1", "ids.1")}
        write_trace(path, meta, tensors)
        if biased:
            Trace.open(path, check_values=True)
        else:
            with pytest.raises(UserError, match=r"'z\.1' and 'ids\.1' are not in falling order .* at token 7"):
                Trace.open(path, check_values=True)


def test_equal_logits_stand_by_rising_id(tmp_path: Path) -> None:
    meta, tensors = random_trace()
    path = tmp_path / "t.safetensors"
    z, ids = tensors["z.0"].copy(), tensors["ids.0"].copy()
    z[3, 4] = z[3, 5]
    ids[3, 4:6] = np.sort(ids[3, 4:6])
    write_trace(path, meta, {**tensors, "z.0": z, "ids.0": ids})
    Trace.open(path, check_values=True)
    write_trace(path, meta, {**tensors, "z.0": z, "ids.0": swap(ids, 3, 4, 5)})
    with pytest.raises(UserError, match=r"ties by rising id\) at token 3"):
        Trace.open(path, check_values=True)


@pytest.mark.parametrize(("name", "message"), [("zmin.1", "above a recorded logit"), ("lse.1", "below the largest logit")])
def test_values_that_contradict_the_logits_are_refused(tmp_path: Path, name: str, message: str) -> None:
    meta, tensors = random_trace()
    rows = tensors["z.1"]
    spoil(tensors, name, (11,), float(rows[11, -1] + 0.01 if name == "zmin.1" else rows[11, 0] - 0.01))
    write_trace(tmp_path / "t.safetensors", meta, tensors)
    with pytest.raises(UserError, match=rf"'{name}' is {message} at token 11"):
        Trace.open(tmp_path / "t.safetensors", check_values=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("labels", []), ("model_revision", None), ("model_revision", 3), ("normalise", 1), ("normalise", "yes"), ("scale", "1"), ("scale", True),
        ("scale", None), ("scale", 10**400), ("bias", 1.0), ("bias", [[0.0] * 16]), ("bias", [[0.0] * 15] * 2), ("bias", [["0"] * 16] * 2),
        ("groups", []), ("groups", {"count": 4}), ("groups", {"count": 4, "allowed": 5, "score": "max"}), ("layers", True), ("extra", None),
        ("groups", {"count": 4, "allowed": 2, "score": ["max"]}), ("domains", [1, 2]), ("sources", {"0": 1}), ("gating", ["softmax"]),
        ("software", "none"), ("set_mismatches", 0.5), ("tokens", 10**30), ("layers", 10**30),
    ],
)  # fmt: skip
def test_metadata_of_a_wrong_type_is_one_line(tmp_path: Path, name: str, value: Any) -> None:
    meta, tensors = random_trace()
    setattr(meta, name, value)
    path = tmp_path / "t.safetensors"
    write_trace(path, meta, tensors)
    with pytest.raises(UserError) as caught:
        Trace.open(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_constants_that_are_not_json_are_refused(tmp_path: Path) -> None:
    meta, tensors = random_trace()
    path = tmp_path / "t.safetensors"
    write_trace(path, meta, tensors)
    path.write_bytes(path.read_bytes().replace(rb"\"scale\": 1.0", rb"\"scale\": NaN"))
    with pytest.raises(UserError, match="NaN is not JSON"):
        Trace.open(path)


@pytest.mark.parametrize("shape", [[10**30, 0], [0], [], [1] * 100, [float("inf")], [-1, -60]])
def test_impossible_shapes_are_refused(good: Path, tmp_path: Path, shape: list[Any]) -> None:
    content = good.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    begin = header["token"]["data_offsets"][0]
    header["token"] = {"dtype": "I32", "shape": shape, "data_offsets": [begin, begin + (4 if len(shape) in (0, 100) else 0)]}
    text = json.dumps(header).encode()
    path = tmp_path / "t.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    with pytest.raises(UserError, match="tensor 'token' is malformed") as caught:
        Trace.open(path)
    assert "\n" not in str(caught.value)


def test_a_full_disk_is_one_line_whichever_library_writes(tmp_path: Path) -> None:
    """safetensors names the system's error in a kind of its own, here made by the library and in the words of a full disk."""
    with pytest.raises(UserError, match=r"t\.safetensors: cannot be written \(.*os error"), atomic_path(tmp_path / "t.safetensors"):
        save_file({"weight": np.zeros(3, np.float32)}, tmp_path / "nowhere" / "weights.safetensors")
    full = "Error while serializing: I/O error: No space left on device (os error 28)"
    with pytest.raises(UserError, match="No space left"), atomic_path(tmp_path / "t.safetensors"):
        raise SafetensorError(full)
    with pytest.raises(SafetensorError), atomic_path(tmp_path / "t.safetensors"):
        raise SafetensorError("header too large")
    assert not list(tmp_path.iterdir())
