"""Decoding with everything resident (C = E) against stock llama.cpp: the same file, threads and buffer settings, nothing to fetch.

    python benchmarks/engine_overhead.py [--folder DIR] [--rounds 40] [--threads 1] [--clock wall|cpu]

Target: a ratio of at most 1.03. Physical bound: 1; what is above is two stops of the graph a layer and the policy core. Blocks of both are
interleaved in random order and compared in pairs. Random weights: a timing, no language model.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from engine_model import make

from expertmiss.engine.measure import decoder, interleave, ratio
from expertmiss.engine.session import Engine, EngineOptions

POLICY = {"name": "fetch_all", "miss_rule": {"name": "fetch_all"}, "initial": "warm"}


def main() -> None:
    """Print the ratio, its interval, and where the engine's time goes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("results/engine"))
    parser.add_argument("--type", default="Q4_0")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--block", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="of the slots: cpu, CUDA0 ...")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: on a machine that others use")
    asked = parser.parse_args()
    path = make(asked.folder, asked.type, asked.layers)
    warm_up = 3
    tokens = (asked.rounds + warm_up) * asked.block
    options = EngineOptions(store="mapped", device=asked.device, context=tokens, threads=asked.threads)
    stock, engine = Engine(path, options), Engine(path, options)
    stock.start_stock()
    router = engine.router
    engine.start(POLICY, router["experts"], np.ones((router["layers"], router["experts"]), np.int64))
    text = np.random.default_rng(0).integers(0, engine.vocabulary, tokens)
    variants = {"stock": decoder(stock, text, asked.block), "engine": decoder(engine, text, asked.block)}
    clock = time.perf_counter if asked.clock == "wall" else time.process_time
    seconds = interleave(variants, asked.rounds, warm_up, clock=clock)
    traffic = engine.traffic()
    assert traffic["fetches"] == 0, "something was not resident"
    print(
        f"{path.name}, {path.stat().st_size / 1e9:.2f} GB, {asked.threads} thread(s), {asked.rounds} pairs of {asked.block} tokens, {asked.clock} time"
    )
    for name, values in seconds.items():
        print(f"{name:<7} {np.median(values) / asked.block * 1e3:8.3f} ms a token")
    print(f"ratio   {ratio(seconds['engine'], seconds['stock'])}   target 1.03, bound 1")
    steps = tokens * router["layers"]
    print(f"policy {traffic['policy'] / steps * 1e6:.1f} us, waiting {traffic['waiting'] / steps * 1e6:.1f} us a layer and token")


if __name__ == "__main__":
    main()
