"""What a policy costs: the emulator against the plain forward of the same model, batch and kernels, NLL included in both.

    python benchmarks/emulator_cost.py [--rows 4] [--tokens 512] [--pairs 12] [--json FILE]

Every policy fills a whole batch. Runs alternate (plain, policy), (policy, plain), ... in one process on one thread, and the ratio is taken
within a pair, so that other load on the machine hits both sides alike; where that load comes and goes within a run, the ratio of the fastest
runs is steadier. CPU time of the process and wall time are told apart: on a shared machine only the first means anything. Target: at most 1.10.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from expertmiss.emulate.emulator import Emulator
from expertmiss.emulate.rows import Row
from expertmiss.memory import keep_freed_memory
from expertmiss.models.load import load_model

ROOT = Path(__file__).resolve().parents[1]
HALF_LIFE, BACKGROUND = {"name": "lfu", "variant": "half_life"}, {"name": "background", "beta": 0.5, "delay": 1}
POLICIES: dict[str, dict[str, Any]] = {
    "fetch_all": {"miss_rule": {"name": "fetch_all"}},
    "substitute_all": {"miss_rule": {"name": "substitute_all"}, "admission": {"name": "every_miss"}},
    "first_choice": {"miss_rule": {"name": "first_choice"}},
    "rule_015": {"miss_rule": {"name": "threshold", "tau": 0.15}},
    "quality_first": {"miss_rule": {"name": "threshold", "tau": 0.15}, "eviction": HALF_LIFE, "admission": BACKGROUND},
    "speed_first": {"miss_rule": {"name": "first_choice"}, "eviction": HALF_LIFE, "admission": BACKGROUND},
    "matched_random": {"miss_rule": {"name": "first_choice"}, "chooser": {"name": "matched_random", "margin": 0.5, "seed": 1}},
    "score_margin": {"miss_rule": {"name": "score_margin", "alpha": 0.3}},
    "cache_prior": {"miss_rule": {"name": "cache_prior", "lambda": 0.3, "J": 1}},
    "max_rank": {"miss_rule": {"name": "max_rank", "J": 2, "M": 32}},
}


def seconds(run: Callable[[], object]) -> tuple[float, float]:
    """(CPU, wall) seconds of a call."""
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    return time.process_time() - cpu, time.perf_counter() - wall


def measure(emulator: Emulator, tokens: np.ndarray[Any, Any], pairs: int) -> dict[str, Any]:
    """Plain microseconds a token, and the policy's ratio to it: median and range of the middle 80 % of the pairs, and fastest to fastest."""
    sides = {"plain": lambda: emulator.plain(tokens), "policy": lambda: emulator.whole(tokens, 0)}
    for run in sides.values():  # kernels are chosen at first use
        run()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for pair in range(pairs):
        for name in sorted(sides, reverse=bool(pair % 2)):
            times[name].append(seconds(sides[name]))
    plain, policy = np.asarray(times["plain"]), np.asarray(times["policy"])
    told: dict[str, Any] = {"plain_us_per_token": float(np.median(plain[:, 0]) / (len(tokens) * len(emulator.rows)) * 1e6)}
    for column, kind in enumerate(("cpu", "wall")):
        low, middle, high = np.quantile(policy[:, column] / plain[:, column], [0.1, 0.5, 0.9])
        fastest = policy[:, column].min() / plain[:, column].min()
        told[kind] = {"ratio": float(middle), "low": float(low), "high": float(high), "fastest": float(fastest)}
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(ROOT / "models" / "builtin"))
    parser.add_argument("--rows", type=int, default=4, help="sequences of a batch")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--policies", nargs="*", default=list(POLICIES), choices=list(POLICIES))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as the stage does
    model, tokenizer = load_model(given.model)
    text = (ROOT / "docs" / "definitions.md").read_text(encoding="utf-8")
    tokens = np.asarray(tokenizer(text)["input_ids"][: given.tokens], dtype=np.int64)
    results = {}
    print(
        f"{'policy':16s} {'misses':>7s} {'plain us/token':>15s} {'CPU: median (80 % of pairs)':>29s} {'fastest':>8s} {'wall: median':>27s} {'fastest':>8s}"
    )
    for name in given.policies:
        emulator = Emulator(model, [], threads=1)
        capacity = max(emulator.geometry.top_k, (emulator.geometry.experts + 2) // 4)
        row = Row(name, {"name": name, "initial": "cold", **POLICIES[name]}, capacity)
        emulator = Emulator(model, [row] * given.rows, threads=1)
        found = results[name] = measure(emulator, tokens, given.pairs)
        meters = emulator.whole(tokens, 0).meters
        found["miss_rate"] = float(1 - meters["hits"].sum() / meters["calls"].sum())
        shown = [f"{found[kind]['ratio']:.3f} ({found[kind]['low']:.3f} to {found[kind]['high']:.3f})" for kind in ("cpu", "wall")]
        print(
            f"{name:16s} {found['miss_rate']:7.1%} {found['plain_us_per_token']:15.1f} {shown[0]:>29s} {found['cpu']['fastest']:8.3f} "
            f"{shown[1]:>27s} {found['wall']['fastest']:8.3f}",
            flush=True,
        )
    if given.json is not None:
        about = {"rows": given.rows, "tokens": len(tokens), "pairs": given.pairs, "threads": 1, "torch": torch.__version__}
        given.json.write_text(json.dumps({"about": about, "policies": results}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
