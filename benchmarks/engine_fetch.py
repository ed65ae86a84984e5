"""Throughput of the engine's fetches against raw reads of the same block size and queue depth from the same file.

    python benchmarks/engine_fetch.py [--folder DIR] [--rounds 8] [--depth 8]

Target: at least 0.85 of raw reads. Raw: threads that read experts' blocks with O_DIRECT into their own buffers and do nothing else, in the order
of the engine's. Start: a start's residents, a random quarter, asked for at once and in rising order. Step: the misses of decoding with C = K in
random order, of which those of one layer are under way together (bytes over the time that the step waited). "Raw, layers" reads the same and begins
a layer's only when the last of the layer before has arrived, as a decoder must, which learns from the router what comes next: the physical bound.
"""

from __future__ import annotations

import argparse
import itertools
import mmap
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from engine_model import blocks, make

from expertmiss.engine.session import Engine, EngineOptions

POLICY = {"name": "fetch_all", "miss_rule": {"name": "fetch_all"}, "initial": "random"}
PAGE = 4096


def raw_reads(path: Path, groups: list[list[tuple[int, int]]], depth: int) -> float:
    """Bytes a second (of what was asked for) with ``depth`` reads under way; a group begins when the one before has ended."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    largest = max(size for group in groups for _, size in group)
    together, taken = threading.Barrier(depth), [itertools.count() for _ in groups]

    def read(_: int) -> None:
        view = memoryview(mmap.mmap(-1, (largest // PAGE + 2) * PAGE))
        try:
            together.wait()
            for group, places in zip(groups, taken, strict=True):
                while (at := next(places)) < len(group):
                    offset, size = group[at]
                    begin = offset // PAGE * PAGE
                    os.preadv(descriptor, [view[: -(-(offset + size - begin) // PAGE) * PAGE]], begin)
                together.wait()
        except OSError:
            together.abort()  # the others would wait for ever
            raise

    begin = time.perf_counter()
    with ThreadPoolExecutor(depth) as pool:
        list(pool.map(read, range(depth)))
    seconds = time.perf_counter() - begin
    os.close(descriptor)
    return sum(size for group in groups for _, size in group) / seconds


def main() -> None:
    """Print bytes a second of each way, round by round interleaved, and the ratios of the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("results/engine"))
    parser.add_argument("--type", default="Q4_0")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--device", default="cpu", help="of the slots: cpu, CUDA0 ...")
    asked = parser.parse_args()
    path = make(asked.folder, asked.type, asked.layers)
    layers = blocks(path)
    engine = Engine(path, EngineOptions(store="direct", device=asked.device, context=4096, io_threads=asked.depth))
    experts, top_k = engine.router["experts"], engine.router["top_k"]
    random = np.random.default_rng(0)
    names = ("raw, start", "engine, start", "raw, step", "raw, layers", "engine, step")
    speeds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(asked.rounds):
        engine.start(POLICY, experts // 4, seed=number)
        traffic = engine.traffic()
        speeds["engine, start"].append(traffic["loaded_bytes"] / traffic["filling"])
        chosen = [np.sort(random.choice(experts, experts // 4, replace=False)) for _ in layers]
        speeds["raw, start"].append(
            raw_reads(path, [[part for layer, ids in zip(layers, chosen, strict=True) for i in ids for part in layer[i]]], asked.depth)
        )
        engine.start(POLICY, top_k, seed=number)
        before = engine.traffic()
        for token in random.integers(0, engine.vocabulary, 24):
            engine.step(int(token))
        traffic = engine.traffic()
        speeds["engine, step"].append((traffic["loaded_bytes"] - before["loaded_bytes"]) / (traffic["waiting"] - before["waiting"]))
        for name in ("raw, step", "raw, layers"):
            steps = [
                [part for i in random.choice(experts, top_k, replace=False) for part in layer[i]] for _ in range(8) for layer in layers
            ]
            groups = steps if name == "raw, layers" else [[part for step in steps for part in step]]
            speeds[name].append(raw_reads(path, groups, asked.depth))
    print(f"{path.name}, blocks of {layers[0][0][0][1] / 1024:.0f} KiB, {asked.depth} reads under way, {asked.rounds} rounds")
    for name, values in speeds.items():
        pairs = np.array(values) / np.array(speeds["raw, start" if "start" in name else "raw, step"])
        print(
            f"{name:<14} {np.median(values) / 1e9:6.2f} GB/s [{min(values) / 1e9:.2f}, {max(values) / 1e9:.2f}]  "
            f"{np.median(pairs):.2f} of raw [{pairs.min():.2f}, {pairs.max():.2f}]"
        )
    print("target 0.85; bound 1, of a step's: raw, layers")


if __name__ == "__main__":
    main()
