"""Raw reads of a GGUF file's experts as the engine reads them: aligned, past the page cache, several under way at once."""

from __future__ import annotations

import itertools
import mmap
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from expertmiss.errors import UserError

PAGE = 4096


def expert_blocks(path: Path) -> NDArray[np.int64]:
    """(offset, bytes) of every read of every expert in the file, [L, E, reads, 2].

    Raises:
        UserError: no expert tensors, or layers of different shapes.
    """
    import gguf

    layers: dict[int, list[NDArray[np.int64]]] = {}
    for tensor in gguf.GGUFReader(path).tensors:
        if tensor.name.endswith("_exps.weight"):
            experts = int(tensor.shape[2])
            size = int(tensor.n_bytes) // experts
            places = int(tensor.data_offset) + size * np.arange(experts)
            layers.setdefault(int(tensor.name.split(".")[1]), []).append(np.stack([places, np.full(experts, size)], axis=1))
    shapes = {tuple(part.shape for part in parts) for parts in layers.values()}
    if len(shapes) != 1:
        raise UserError(f"{path}: {'experts of several shapes' if shapes else 'no experts'}; only layers of equal experts are calibrated")
    return np.stack([np.stack(layers[layer], axis=1) for layer in sorted(layers)])


class Reader:
    """Aligned reads of one file.

    Args:
        direct: past the page cache.

    Raises:
        UserError: the file system refuses reads past the page cache.
    """

    def __init__(self, path: Path, direct: bool) -> None:
        self.size = path.stat().st_size // PAGE * PAGE
        try:
            self.descriptor = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
        except OSError as problem:
            raise UserError(
                f"{path}: cannot be read past the page cache ({problem.strerror}); put results/ on a disk, or set engine.store=mapped"
            ) from None

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)

    def time(self, size: int, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """Seconds of every read of ``size`` bytes at ``places``, one after the other."""
        rounded = -(-size // PAGE) * PAGE
        with mmap.mmap(-1, rounded) as buffer:
            seconds = np.empty(len(places))
            for index, place in enumerate(places.tolist()):
                begin = time.perf_counter()
                os.preadv(self.descriptor, [buffer], place)
                seconds[index] = time.perf_counter() - begin
        return seconds

    def places(self, size: int, count: int, random: np.random.Generator) -> NDArray[np.int64]:
        """``count`` aligned offsets at which ``size`` bytes may be read."""
        last = max((self.size - size) // PAGE, 1)
        return random.integers(0, last, count) * PAGE

    def together(self, size: int, count: int, threads: int, random: np.random.Generator) -> float:
        """Bytes a second of ``count`` reads with ``threads`` under way."""
        shares = np.array_split(self.places(size, count, random), threads)
        begin = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda share: self.time(size, share), shares))
        return size * count / (time.perf_counter() - begin)

    @contextmanager
    def background(self, size: int, threads: int, random: np.random.Generator) -> Iterator[None]:
        """Within the block ``threads`` threads read on and on."""
        end = threading.Event()
        places = [self.places(size, 4096, random) for _ in range(threads)]

        def read(own: list[int]) -> None:
            with mmap.mmap(-1, -(-size // PAGE) * PAGE) as buffer:
                for place in itertools.cycle(own):
                    if end.is_set():
                        return
                    os.preadv(self.descriptor, [buffer], place)

        with ThreadPoolExecutor(threads) as pool:
            waiting = [pool.submit(read, own.tolist()) for own in places]
            try:
                yield
            finally:
                end.set()
                for one in waiting:
                    one.result()
