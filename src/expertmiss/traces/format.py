"""The trace file: one safetensors file a corpus shard, layer-major, ranked, read by memory mapping.

Tensors, ``T`` tokens and depth ``M`` (the ``M`` best experts of every row are kept):

========== ======= ======= ==============================================================================
``ids.l``  uint16  [T, M]  expert ids of layer ``l`` in falling order of selection score, ties to the lower id
``z.l``    float32 [T, M]  router logits of those ids
``lse.l``  float64 [T]     log-sum-exp of the logits over all E experts, by the policy core's exp
``zmin.l`` float32 [T]     smallest logit over all E experts
``token``  int32   [T]     token ids
``document`` int32 [T]     document ids; a document's tokens are contiguous
``domain`` uint8   [T]     index into the metadata's ``domains``
``topic_change`` uint8 [T] 0 none, 1 topic change, 2 same-topic document change
========== ======= ======= ==============================================================================

The header's ``expertmiss`` entry holds the metadata (:class:`TraceMeta`) as JSON. Readers never copy a tensor.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from expertmiss.errors import UserError
from expertmiss.files import atomic_path

SCHEMA = 1
GATINGS = ("softmax", "sigmoid", "softmax_after_topk")
GROUP_SCORES = ("max", "top2_sum")
_DTYPES = {"U8": np.uint8, "U16": np.uint16, "I32": np.int32, "F32": np.float32, "F64": np.float64}
_KINDS = {
    "text": ("split", "model", "model_revision", "tokenizer_revision", "dtype", "corpus", "corpus_digest"),
    "a table": ("sources", "software", "labels", "extra"),
    "true or false": ("normalise",),
    "an integer": ("layers", "experts", "top_k", "depth", "tokens", "set_mismatches"),
}
_TYPES: dict[str, type] = {"text": str, "a table": dict, "true or false": bool, "an integer": int}
_PER_TOKEN = {"token": "I32", "document": "I32", "domain": "U8", "topic_change": "U8"}


class Layer(NamedTuple):
    """One layer's rows: ``ids`` and ``z`` are [T, M], ``lse`` and ``zmin`` are [T]."""

    ids: NDArray[np.uint16]
    z: NDArray[np.float32]
    lse: NDArray[np.float64]
    zmin: NDArray[np.float32]


@dataclass
class TraceMeta:
    """What a reader must know besides the tensors."""

    layers: int
    experts: int
    top_k: int
    depth: int
    tokens: int
    gating: str
    normalise: bool
    domains: list[str]
    sources: dict[str, str]
    split: str
    model: str
    model_revision: str
    tokenizer_revision: str
    dtype: str
    corpus: str
    corpus_digest: str
    software: dict[str, str]
    labels: dict[str, Any]
    scale: float = 1.0
    bias: list[list[float]] | None = None
    groups: dict[str, Any] | None = None
    set_mismatches: int = 0
    schema: int = SCHEMA
    extra: dict[str, Any] = field(default_factory=dict)

    def geometry(self) -> dict[str, Any]:
        """The part the policy core reads."""
        names = ("layers", "experts", "top_k", "depth", "gating", "normalise", "scale", "bias", "groups")
        return {name: getattr(self, name) for name in names}


class Trace:
    """A memory-mapped trace file; see the module's docstring for the tensors.

    Raises:
        UserError: the file is missing, truncated, foreign, or disagrees with its own metadata.
    """

    def __init__(self, path: Path, meta: TraceMeta, tensors: dict[str, NDArray[Any]]) -> None:
        self.path, self.meta, self._tensors = path, meta, tensors

    @classmethod
    def open(cls, path: Path | str, check_values: bool = False) -> Trace:
        """Map ``path``; with ``check_values`` also read every row (:meth:`check_values`)."""
        path = Path(path)
        header, start, size, mapping = _read_header(path)
        meta = _read_meta(path, header.pop("__metadata__", None))
        tensors = {name: _map_tensor(path, mapping, name, entry, start, size) for name, entry in header.items()}
        trace = cls(path, meta, tensors)
        trace._check_shapes()
        if check_values:
            trace.check_values()
        return trace

    def layer(self, index: int) -> Layer:
        """Rows of layer ``index`` as read-only views of the file."""
        return Layer(*(self._tensors[f"{name}.{index}"] for name in Layer._fields))

    @cached_property
    def layers(self) -> list[Layer]:
        """All layers, in order."""
        return [self.layer(index) for index in range(self.meta.layers)]

    @property
    def token(self) -> NDArray[np.int32]:
        """Token ids [T]."""
        return self._tensors["token"]

    @property
    def document(self) -> NDArray[np.int32]:
        """Document ids [T]."""
        return self._tensors["document"]

    @property
    def domain(self) -> NDArray[np.uint8]:
        """Domain index of every token [T]."""
        return self._tensors["domain"]

    @property
    def topic_change(self) -> NDArray[np.uint8]:
        """Topic-change flags [T]."""
        return self._tensors["topic_change"]

    def source(self, document: int) -> str:
        """The package or template that ``document`` comes from (the cluster of all intervals)."""
        return self.meta.sources[str(document)]

    def _check_shapes(self) -> None:
        meta = self.meta
        if not (1 <= meta.top_k <= meta.depth <= meta.experts <= 65_535) or meta.layers < 1 or meta.tokens < 1:
            raise UserError(
                f"{self.path}: metadata is inconsistent (layers={meta.layers}, top_k={meta.top_k}, depth={meta.depth}, "
                f"experts={meta.experts}, tokens={meta.tokens}); capture the trace again"
            )
        for name, kind, shape in self._expected():
            if name not in self._tensors:
                raise UserError(f"{self.path}: tensor '{name}' is missing; this is not a complete expertmiss trace, capture it again")
            tensor = self._tensors[name]
            if tensor.dtype != _DTYPES[kind] or tensor.shape != shape:
                raise UserError(
                    f"{self.path}: tensor '{name}' is {tensor.dtype} {tensor.shape}, expected {np.dtype(_DTYPES[kind])} {shape}; capture it again"
                )

    def _expected(self) -> Iterator[tuple[str, str, tuple[int, ...]]]:
        rows, depth = self.meta.tokens, self.meta.depth
        yield from ((name, kind, (rows,)) for name, kind in _PER_TOKEN.items())
        for index in range(self.meta.layers):
            yield f"ids.{index}", "U16", (rows, depth)
            yield f"z.{index}", "F32", (rows, depth)
            yield f"lse.{index}", "F64", (rows,)
            yield f"zmin.{index}", "F32", (rows,)

    def check_values(self) -> None:
        """Read every row once.

        Raises:
            UserError: a logit or log-sum-exp is not finite, an id is out of range or repeated in a row, a row is not in rank order
                (with a bias the order of the logits is free), zmin or lse contradicts the logits, a document is split into two runs,
                or a domain index has no name.
        """
        meta = self.meta
        if int(self.domain.max()) >= len(meta.domains):
            raise UserError(
                f"{self.path}: tensor 'domain' holds index {int(self.domain.max())}, but only {len(meta.domains)} domains are named"
            )
        starts = np.flatnonzero(np.diff(self.document, prepend=self.document[0] - 1))
        runs = self.document[starts]
        if len(np.unique(runs)) != len(runs):
            raise UserError(
                f"{self.path}: tensor 'document' holds a document in two separate runs; tokens of a document must be contiguous"
            )
        missing = [int(run) for run in runs if str(int(run)) not in meta.sources]
        if missing:
            raise UserError(f"{self.path}: metadata 'sources' lacks document {missing[0]}")
        for index, layer in enumerate(self.layers):
            for name, values in (("z", layer.z), ("lse", layer.lse), ("zmin", layer.zmin)):
                if not np.isfinite(values).all():
                    row = int(np.argwhere(~np.isfinite(values))[0][0])
                    raise UserError(
                        f"{self.path}: tensor '{name}.{index}' holds a value that is not finite at token {row}; capture it again"
                    )
            for begin in range(0, meta.tokens, 65_536):
                ids = np.sort(layer.ids[begin : begin + 65_536], axis=1)
                if int(ids[:, -1].max()) >= meta.experts or bool((np.diff(ids.astype(np.int32), axis=1) == 0).any()):
                    raise UserError(f"{self.path}: tensor 'ids.{index}' holds an id out of range or twice in one row; capture it again")
                self._check_order(index, begin, layer)

    def _check_order(self, index: int, begin: int, layer: Layer) -> None:
        """Refuse rows that no ranking can have given, from token ``begin`` on."""
        end = begin + 65_536
        rows = Layer(layer.ids[begin:end], layer.z[begin:end], layer.lse[begin:end], layer.zmin[begin:end])
        largest, smallest = rows.z.max(axis=1), rows.z.min(axis=1)
        # A double-precision logit may have been rounded up to the float32 that is recorded.
        slack = 1e-6 * np.maximum(1.0, np.abs(largest))
        found = [
            (rows.zmin > smallest, f"tensor 'zmin.{index}' is above a recorded logit"),
            (rows.lse < largest - slack, f"tensor 'lse.{index}' is below the largest logit"),
        ]
        if self.meta.bias is None:
            step, rising = np.diff(rows.z, axis=1), np.diff(rows.ids.astype(np.int32), axis=1) > 0
            unsorted = (step > 0) | ((step == 0) & ~rising)
            found.append((unsorted.any(axis=1), f"tensors 'z.{index}' and 'ids.{index}' are not in falling order (ties by rising id)"))
        for wrong, what in found:
            if wrong.any():
                raise UserError(f"{self.path}: {what} at token {begin + int(wrong.argmax())}; capture it again")


def _read_header(path: Path) -> tuple[dict[str, Any], int, int, mmap.mmap]:
    foreign = f"{path}: not a trace file (no safetensors header); name a file written by `expertmiss capture_traces`"
    try:
        size = path.stat().st_size
        if size < 16:
            raise UserError(foreign)
        with path.open("rb") as stream:
            mapping = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as problem:
        raise UserError(f"{path}: cannot be read ({problem.strerror})") from None
    length = int.from_bytes(mapping[:8], "little")
    if not 2 <= length <= min(size - 8, 100_000_000):
        raise UserError(foreign)
    try:
        header = json.loads(mapping[8 : 8 + length])
    except (ValueError, RecursionError):
        raise UserError(foreign) from None
    if not isinstance(header, dict):
        raise UserError(foreign)
    return header, 8 + length, size, mapping


def _read_meta(path: Path, metadata: Any) -> TraceMeta:
    if not isinstance(metadata, dict) or "expertmiss" not in metadata:
        raise UserError(f"{path}: a safetensors file, but not an expertmiss trace (no 'expertmiss' metadata)")
    try:
        values = json.loads(metadata["expertmiss"], parse_constant=_refuse)
        if not isinstance(values, dict) or values.get("schema") != SCHEMA:
            raise UserError(
                f"{path}: trace schema {values.get('schema') if isinstance(values, dict) else None!r}, this version reads {SCHEMA}; capture it again"
            )
        meta = TraceMeta(**values)
    except (TypeError, ValueError, RecursionError) as problem:
        raise UserError(f"{path}: metadata 'expertmiss' cannot be read ({_first_line(problem)}); capture it again") from None
    for kind, names in _KINDS.items():
        for name in names:
            if type(getattr(meta, name)) is not _TYPES[kind]:
                raise UserError(f"{path}: metadata '{name}' is {_short(getattr(meta, name))}, expected {kind}; capture it again")
    if meta.gating not in GATINGS:
        raise UserError(f"{path}: metadata 'gating' is {_short(meta.gating)}, known: {', '.join(GATINGS)}")
    if not isinstance(meta.domains, list) or not all(isinstance(name, str) for name in [*meta.domains, *meta.sources.values()]):
        raise UserError(f"{path}: metadata 'domains' must be a list and 'sources' a table of names; capture it again")
    if not _is_number(meta.scale):
        raise UserError(f"{path}: metadata 'scale' is {_short(meta.scale)}, expected a finite number; capture it again")
    _check_selection(path, meta)
    return meta


def _check_selection(path: Path, meta: TraceMeta) -> None:
    """The selection bias and the groups of experts have the form that the policy core reads."""
    bias, groups = meta.bias, meta.groups
    if bias is not None:
        rows = bias if isinstance(bias, list) and len(bias) == meta.layers else [None]
        if not all(isinstance(row, list) and len(row) == meta.experts and all(map(_is_number, row)) for row in rows):
            raise UserError(f"{path}: metadata 'bias' is not {meta.layers} lists of {meta.experts} finite numbers; capture it again")
    if groups is None:
        return
    whole = isinstance(groups, dict) and set(groups) == {"count", "allowed", "score"}
    if not (
        whole
        and type(groups["count"]) is type(groups["allowed"]) is int
        and 1 <= groups["allowed"] <= groups["count"]
        and groups["score"] in GROUP_SCORES
    ):
        raise UserError(
            f"{path}: metadata 'groups' is {_short(groups)}, expected 1 <= allowed <= count and score "
            f"{' or '.join(GROUP_SCORES)}; capture it again"
        )


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _is_number(value: Any) -> bool:
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # an integer beyond the range of a double
        return False


def _first_line(problem: Exception) -> str:
    return next(iter(str(problem).splitlines()), type(problem).__name__)[:200]


def _short(value: Any) -> str:
    return repr(value)[:60]


def _map_tensor(path: Path, mapping: mmap.mmap, name: str, entry: Any, start: int, size: int) -> NDArray[Any]:
    try:
        dtype = np.dtype(_DTYPES[entry["dtype"]])
        shape = tuple(int(n) for n in entry["shape"])
        begin, end = (int(offset) for offset in entry["data_offsets"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise UserError(f"{path}: header entry of tensor {name!r} is malformed or of an unknown type; capture the trace again") from None
    # Every tensor of a trace has rows; a length of 0 beside an enormous one would pass as no bytes.
    count = math.prod(shape)
    if not 1 <= len(shape) <= 2 or min(shape) < 1 or begin < 0 or end - begin != count * dtype.itemsize:
        raise UserError(f"{path}: header entry of tensor {name!r} is malformed (shape and size disagree); capture the trace again")
    if start + end > size:
        raise UserError(f"{path}: truncated (tensor {name!r} ends at byte {start + end}, the file has {size}); capture the trace again")
    return np.frombuffer(mapping, dtype=dtype, count=count, offset=start + begin).reshape(shape)


def write_trace(path: Path | str, meta: TraceMeta, tensors: dict[str, NDArray[Any]]) -> None:
    """Write a trace atomically; ``tensors`` as named in the module's docstring."""
    ordered = {name: np.ascontiguousarray(tensors[name]) for name in sorted(tensors)}
    known = {item.name for item in fields(TraceMeta)}
    text = json.dumps({name: value for name, value in asdict(meta).items() if name in known}, sort_keys=True, allow_nan=False)
    with atomic_path(path) as temporary:
        save_file(ordered, temporary, metadata={"expertmiss": text})
