"""Reading a checkpoint's weights straight into tensors that exist already: no mapping, no second copy, one module at a time."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from expertmiss.errors import UserError
from expertmiss.files import read_json

_DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_PIECE = 4 << 20  # elements converted at once where the file's type is another


@dataclass(frozen=True)
class Stored:
    """Where a tensor lies: file, first byte, type, shape."""

    file: Path
    start: int
    dtype: torch.dtype
    shape: tuple[int, ...]


class Checkpoint:
    """The safetensors files of a folder.

    Raises:
        UserError: no such file, or one that is truncated or foreign.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        index = self.folder / "model.safetensors.index.json"
        names = sorted(set(read_json(index)["weight_map"].values())) if index.is_file() else ["model.safetensors"]
        self.tensors: dict[str, Stored] = {}
        for name in names:
            self.tensors.update(_header(self.folder / name))

    def fill(self, name: str, out: Tensor) -> None:
        """Read the weight that transformers calls ``name`` into ``out`` (contiguous, on the CPU).

        Checkpoints hold experts one by one, or fused under other names; both are read.

        Raises:
            UserError: the weight is missing or has another shape.
        """
        for pattern, parts in _FORMS:
            match = re.fullmatch(pattern, name)
            if match is None:
                continue
            pieces = parts(match, out)
            if all(piece in self.tensors for piece, _ in pieces):
                for piece, target in pieces:
                    self._read(piece, target)
                return
        raise UserError(f"{self.folder}: weight '{name}' is not in the checkpoint; restore its *.safetensors files")

    def _read(self, name: str, out: Tensor) -> None:
        stored = self.tensors[name]
        if stored.shape != tuple(out.shape):
            raise UserError(
                f"{stored.file}: weight '{name}' has shape {list(stored.shape)}, config.json says {list(out.shape)}; restore both files"
            )
        flat = out.view(-1)
        with open(stored.file, "rb", buffering=0) as file:
            file.seek(stored.start)
            for begin in range(0, flat.numel(), _PIECE):
                target = flat[begin : begin + _PIECE]
                raw = target if stored.dtype == out.dtype else torch.empty(target.numel(), dtype=stored.dtype)
                _read_into(file, raw, stored.file)
                if raw is not target:
                    target.copy_(raw)
            # What was read once is not read again before all other layers were.
            os.posix_fadvise(file.fileno(), stored.start, flat.numel() * stored.dtype.itemsize, os.POSIX_FADV_DONTNEED)


def _own_name(match: re.Match[str], out: Tensor) -> list[tuple[str, Tensor]]:
    return [(match[0], out)]


def _per_expert(match: re.Match[str], out: Tensor) -> list[tuple[str, Tensor]]:
    """``<block>.experts.gate_up_proj`` [E, 2 I, H] or ``down_proj`` [E, H, I] from one matrix an expert."""
    block, which = match[1], match[2]
    if which == "down_proj":
        return [(f"{block}.experts.{expert}.down_proj.weight", out[expert]) for expert in range(len(out))]
    inner = out.shape[1] // 2
    return [
        (f"{block}.experts.{expert}.{half}_proj.weight", part)
        for expert in range(len(out))
        for half, part in (("gate", out[expert, :inner]), ("up", out[expert, inner:]))
    ]


def _renamed(before: str, after: str) -> Callable[[re.Match[str], Tensor], list[tuple[str, Tensor]]]:
    return lambda match, out: [(match[0].replace(before, after), out)]


_FORMS: list[tuple[str, Callable[[re.Match[str], Tensor], list[tuple[str, Tensor]]]]] = [
    (r".*", _own_name),
    (r"(.*)\.experts\.(gate_up_proj|down_proj)", _per_expert),
    (r".*\.experts\.gate_up_proj", _renamed("experts.gate_up_proj", "input_linear.weight")),  # Granite
    (r".*\.experts\.down_proj", _renamed("experts.down_proj", "output_linear.weight")),
    (r".*\.router\.weight", _renamed("router.weight", "router.layer.weight")),
    (r"lm_head\.weight", _renamed("lm_head", "model.embed_tokens")),  # tied
]
"""Patterns of transformers' names, and where their weights are in a checkpoint: (tensor, part of ``out``)."""


def _read_into(file: Any, out: Tensor, path: Path) -> None:
    """Fill ``out`` from the file's position."""
    view = memoryview(out.view(torch.uint8).numpy())  # type: ignore[arg-type]
    while len(view) > 0:
        count = file.readinto(view)
        if not count:
            raise UserError(f"{path}: ends within a weight; copy the file again")
        view = view[count:]


def _header(path: Path) -> dict[str, Stored]:
    """Tensors of a file."""
    try:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            entries: dict[str, Any] = json.loads(file.read(size)) if 0 < size < 1 << 28 else {}
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; a checkpoint folder holds config.json and its *.safetensors files") from None
    except (ValueError, OSError) as problem:
        raise UserError(f"{path}: not a safetensors file ({problem}); copy it again") from None
    entries.pop("__metadata__", None)
    stored = {}
    for name, entry in entries.items():
        if entry.get("dtype") not in _DTYPES:
            raise UserError(f"{path}: weight '{name}' is of type {entry.get('dtype')}; known: {', '.join(_DTYPES)}")
        stored[name] = Stored(path, 8 + size + entry["data_offsets"][0], _DTYPES[entry["dtype"]], tuple(entry["shape"]))
    if not stored:
        raise UserError(f"{path}: not a safetensors file with weights; copy it again")
    return stored
