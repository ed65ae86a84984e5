"""A model of the target's geometry per layer with random weights, for timing: E = 512, K = 10, hidden 2048, experts of width 512.

Random weights: I/O and kernel timing, no language model.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import quantize

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.engine.random_gguf import Maker, Shape

TARGET = Shape(experts=512, top_k=10, hidden=2048, width=512, layers=3, vocabulary=512, heads=16, kv_heads=2, head=128)
TILE = 16  # distinct experts; the others repeat them, which no timing sees and which saves minutes


class TiledMaker(Maker):
    """Writes experts as repetitions of a few."""

    def expert_tensor(self, name: str, *size: int) -> None:
        values = self.random.standard_normal((TILE, *size[1:]), dtype=np.float32) * 0.03
        tile = quantize(values, self.type)
        self.writer.add_tensor(name, np.concatenate([tile] * (size[0] // TILE)), raw_dtype=self.type)


def make(folder: Path, expert_type: str = "Q4_0", layers: int = 3) -> Path:
    """The model's path; written where it is not there yet."""
    path = folder / f"target-{layers}-{expert_type}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        shape = Shape(**{**TARGET.__dict__, "layers": layers})
        TiledMaker(path, shape, expert_type, 0).write()
    return path


def blocks(path: Path) -> list[list[list[tuple[int, int]]]]:
    """(offset, size) of an expert's parts in the file, by layer and expert."""
    layers: dict[str, list[list[tuple[int, int]]]] = {}
    for tensor in gguf.GGUFReader(path).tensors:
        if "_exps.weight" in tensor.name:
            experts = int(tensor.shape[2])
            size = int(tensor.n_bytes) // experts
            layer = layers.setdefault(tensor.name.split(".")[1], [[] for _ in range(experts)])
            for expert in range(experts):
                layer[expert].append((int(tensor.data_offset) + expert * size, size))
    return [layers[name] for name in sorted(layers, key=int)]
