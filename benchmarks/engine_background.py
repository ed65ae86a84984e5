"""How much background admissions slow decoding down while the disk has bandwidth to spare.

    python benchmarks/engine_background.py [--folder DIR] [--rounds 40] [--landing timed|scheduled] [--delay 1] [--beta 0.5]

Target: at most 3 %. Two engines decode the same random tokens with a quarter of the experts resident and every miss substituted, so that no token
waits for a miss and each executes K experts: one admits substituted experts in the background (accumulated gate mass beta), the other none. What
differs is the admissions: bookkeeping, reads, copies into slots and, with scheduled landing, waiting for reads that are late. Blocks are
interleaved in random order and compared in pairs; reads still under way when a block ends go on into the other engine's. The reads' rate is
printed beside that of raw reads of the same blocks: bandwidth is idle as far as it is below. Random weights: I/O and kernel timing, no language model.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from engine_fetch import raw_reads
from engine_model import blocks, make

from expertmiss.engine.measure import decoder, interleave, ratio
from expertmiss.engine.session import Engine, EngineOptions

NEVER = 1e300  # more gate mass than a run can accumulate


def policy(beta: float, delay: int) -> dict[str, Any]:
    """Every miss substituted, half-life frequencies, admissions above ``beta``."""
    return {
        "name": "background", "miss_rule": {"name": "substitute_all"}, "eviction": {"name": "lfu", "variant": "half_life"},
        "admission": {"name": "background", "beta": beta, "delay": delay}, "initial": "random",
    }  # fmt: skip


def main() -> None:
    """Print the ratio with its interval, where the time of both goes, and the rate of the background's reads."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("results/engine"))
    parser.add_argument("--type", default="Q4_0")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--block", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--io-threads", type=int, default=8)
    parser.add_argument("--device", default="cpu", help="of the slots: cpu, CUDA0 ...")
    parser.add_argument("--landing", choices=["timed", "scheduled"], default="timed")
    parser.add_argument("--delay", type=int, default=1, help="of scheduled landings, tokens")
    parser.add_argument("--beta", type=float, default=0.5)
    asked = parser.parse_args()
    path = make(asked.folder, asked.type, asked.layers)
    warm_up = 3
    count = (asked.rounds + warm_up) * asked.block
    options = EngineOptions(store="direct", device=asked.device, context=count, threads=asked.threads, io_threads=asked.io_threads)
    engines = {"without": Engine(path, options), "with": Engine(path, options)}
    for name, engine in engines.items():
        capacity = engine.router["experts"] // 4
        engine.start(policy(asked.beta if name == "with" else NEVER, asked.delay), capacity, landing=asked.landing)
    text = np.random.default_rng(0).integers(0, engines["with"].vocabulary, count)
    seconds = interleave({name: decoder(engine, text, asked.block) for name, engine in engines.items()}, asked.rounds, warm_up)
    times = {
        name: {part: values[warm_up * asked.block :] for part, values in engine.take_times().items()} for name, engine in engines.items()
    }
    assert not any(times[name]["fetch_bytes"].any() for name in times), "something was fetched"
    assert not times["without"]["admission_bytes"].any() and times["with"]["admission_bytes"].any(), "admissions are not what differs"
    random = np.random.default_rng(1)
    layers = blocks(path)
    some = [part for layer in layers for expert in random.choice(len(layer), min(len(layer), 80), replace=False) for part in layer[expert]]
    raw = raw_reads(path, some, asked.io_threads)
    rate = times["with"]["admission_bytes"].sum() / times["with"]["wall"].sum()
    print(
        f"{path.name}, {asked.threads} thread(s), {asked.rounds} pairs of {asked.block} tokens, {asked.landing} landing, beta {asked.beta}"
    )
    for name, parts in times.items():
        shares = ", ".join(f"{part} {parts[part].mean() * 1e3:.3f}" for part in ("wall", "compute", "waiting", "policy", "background"))
        print(f"{name:<8} ms a token: {shares}")
    megabytes = times["with"]["admission_bytes"].mean() / 1e6
    print(f"read in the background: {megabytes:.2f} MB a token, {rate / 1e9:.3f} GB/s, {rate / raw:.0%} of raw reads' {raw / 1e9:.2f} GB/s")
    print(f"ratio    {ratio(seconds['with'], seconds['without'])}   target 1.03, bound 1")


if __name__ == "__main__":
    main()
