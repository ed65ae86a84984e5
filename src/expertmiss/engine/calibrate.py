"""Stage calibrate_host: what the time model needs to know of this host with this model.

Inputs:  the model's GGUF file, the compiled engine, ``tokens.parquet`` (text of the calibration split).
Outputs: ``calibration.parquet`` (every quantity with its interval over rounds), ``profile.yaml`` (a file that the configuration group ``host``
         reads).
Steps:   rounds of: tokens with everything resident (computing, policy core); the same tokens with misses, and with admissions; single reads of several
         sizes, alone and beside background reads (latency = a + bytes / b); all reads together. Medians over rounds; of what misses and admissions
         add, least squares over the tokens of all rounds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray
from scipy.optimize import nnls

from expertmiss.engine.reads import Reader, expert_blocks
from expertmiss.engine.session import Engine, engine_options
from expertmiss.errors import UserError
from expertmiss.evaluation import FIRST_TARGET
from expertmiss.files import write_text
from expertmiss.progress import Progress
from expertmiss.provenance import Labels, write_run
from expertmiss.simulate.capacity import holds_a_token, resident_experts
from expertmiss.simulate.time_model import Requests, requests_of
from expertmiss.stages import Context
from expertmiss.stats.tables import write_table
from expertmiss.traces.capture import choose_documents, read_tokens

STAGE = "calibrate_host"
MISSES: dict[str, Any] = {
    "name": "misses", "miss_rule": {"name": "fetch_all"}, "eviction": {"name": "lru"}, "admission": {"name": "fetched_only"}, "initial": "random",
}  # fmt: skip
ADMISSIONS = {**MISSES, "name": "admissions", "miss_rule": {"name": "substitute_all"}, "admission": {"name": "every_miss"}}
"""Nothing is fetched for a step; every miss is read in the background for the next token."""
LATE = 0.1
"""Share of its time that a token waits for admissions from which on their reads are taken to fill it."""
SIZES = (1, 4, 16)
"""Sizes of the reads, in blocks of one expert's matrix: the slope over bytes needs several."""
RESAMPLES = 2000
HOST_BYTES = 64 << 20
"""Weights that the processor multiplies at once: more than its caches hold."""


def run(cfg: dict[str, Any], *, out: Path, context: Context, gguf: Path, engine: Path, tokens: Path) -> None:
    """Write the table, the profile and ``run.json`` into ``out``.

    ``cfg``: ``model``, ``host`` (``name``, ``assumed``), ``corpus.name``, ``engine``. ``engine`` is the build's ``build.json``.

    Raises:
        UserError: the engine is not built, the host is an assumed one, the file system refuses direct reads, no calibration text.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    options, host = cfg["engine"], cfg["host"]
    refuse_assumed(host)
    blocks = expert_blocks(gguf)
    _, _, reads, _ = blocks.shape
    rounds, length = options["calibration_rounds"], options["calibration_tokens"]
    texts = choose_documents(read_tokens(tokens), "calibration", rounds, tokens)["tokens"].tolist()
    session = Engine(gguf, engine_options(options, length))
    experts, top_k = session.router["experts"], session.router["top_k"]
    capacities = capacities_of(options["calibration_residency"], experts, top_k)
    reader = Reader(gguf, options["store"] == "direct")
    random = np.random.default_rng(0)
    found, added, decoded = [], [], 0
    with Progress(rounds + 1, "calibrate host", "round", context.journal) as bar:
        for number in range(rounds + 1):
            words = np.asarray(texts[number % len(texts)])[:length]
            computed = decode_resident(session, words)
            extra = decode_with_reads(session, words, capacities, computed)
            measured = measure_reads(reader, int(blocks[..., 1].max()), options["calibration_reads"], options["io_threads"], random)
            if number > 0:  # the first round warms up
                found.append({**computed, **measured, "host_compute_bytes_per_s": host_compute()})
                added.append(extra)
                decoded += len(words) * (1 + 2 * len(capacities))
            bar.update()
    reader.close()
    table = pd.concat([summarize(pd.DataFrame(found)), summarize_added(added, top_k)], ignore_index=True)
    expert = int(blocks[0, 0, :, 1].sum())
    profile = profile_of(host["name"], table, options["io_threads"], expert, reads)
    labels = Labels(
        cfg["model"]["substrate"], "own", "measured", host["name"], "exploratory", {"rounds": rounds, "tokens": decoded},
        [f"{expert:,} bytes an expert, {reads} reads each", f"store {options['store']}"],
    )  # fmt: skip
    outputs = write_table(out / "calibration.parquet", table, labels, {})
    write_text(
        out / "profile.yaml",
        f"# Measured by calibrate_host with {gguf.name}; docs/engine_study.md says how.\n" + yaml.safe_dump(profile, sort_keys=False),
    )
    write_run(
        out, stage=STAGE, experiment=context.experiment, name=f"calibrate {host['name']} with {cfg['model']['name']}", config=cfg,
        source_hash=context.source_hash, inputs=[gguf, engine, tokens], outputs=[*outputs, out / "profile.yaml"], artifacts=[outputs[1]],
        metrics={row["quantity"]: row["estimate"] for row in table.to_dict("records")}, timings={"total_s": time.monotonic() - clock},
        labels=labels, started=started,
    )  # fmt: skip


def capacities_of(shares: Sequence[float], experts: int, top_k: int) -> list[int]:
    """C of every resident share, rising; those that cannot hold a token's experts are left out.

    Raises:
        UserError: none is left at which anything is missed.
    """
    found = {
        resident_experts(share, experts, top_k, "engine.calibration_residency") for share in shares if holds_a_token(share, experts, top_k)
    }
    if not found - {experts}:
        raise UserError(f"engine.calibration_residency: no share from {top_k / experts:.3g} to below 1 is among {list(shares)}; add one")
    return sorted(found)


def refuse_assumed(host: dict[str, Any]) -> None:
    """A measurement may not carry the name of a host that nobody measured.

    Raises:
        UserError: ``host.assumed`` is set.
    """
    if host["assumed"]:
        raise UserError(
            f"host '{host['name']}': is assumed, so nothing can be measured on it; choose host=this_host, or `expertmiss predict`"
        )


def decode_resident(engine: Engine, tokens: NDArray[Any]) -> dict[str, float]:
    """Mean seconds of computing and of the policy core, a token and layer, with everything resident; first tokens left out."""
    times, _ = _decode(engine, MISSES, engine.router["experts"], tokens)
    layers = engine.router["layers"]
    return {f"{name}_s": float(times[name].mean()) / layers for name in ("compute", "policy")}


class Added(NamedTuple):
    """What tokens of one round took beyond a resident token, and what they asked for.

    ``fetching`` float64 [T], seconds, with ``missing`` int64 [T, L] misses; ``landing`` float64 [T] (without waiting) with ``landed`` int64 [T, L]
    admissions; ``saturated``: seconds and admissions, sums over the tokens that waited for an admission.
    """

    fetching: NDArray[np.float64]
    missing: NDArray[np.int64]
    landing: NDArray[np.float64]
    landed: NDArray[np.int64]
    saturated: tuple[float, int]


def decode_with_reads(engine: Engine, tokens: NDArray[Any], capacities: Sequence[int], resident: Mapping[str, float]) -> Added:
    """Decode ``tokens`` with misses and with admissions at every capacity, the smallest first.

    ``resident``: what :func:`decode_resident` found for the same tokens.
    """
    base = engine.router["layers"] * (resident["compute_s"] + resident["policy_s"])
    found: dict[str, list[NDArray[Any]]] = {name: [] for name in Added._fields[:4]}
    seconds, admissions = 0.0, 0
    for capacity in capacities:
        times, requests = _decode(engine, MISSES, capacity, tokens)
        found["fetching"].append(times["wall"] - base)
        found["missing"].append(requests.fetches)
        times, requests = _decode(engine, ADMISSIONS, capacity, tokens)
        found["landing"].append(times["wall"] - times["waiting"] - base)
        found["landed"].append(requests.landings)
        late = times["waiting"] > LATE * times["wall"]
        seconds, admissions = seconds + float(times["wall"][late].sum()), admissions + int(requests.landings[late].sum())
    fetching, missing, landing, landed = (np.concatenate(found[name]) for name in Added._fields[:4])
    return Added(fetching, missing, landing, landed, (seconds, admissions))


def _decode(engine: Engine, policy: dict[str, Any], capacity: int, tokens: NDArray[Any]) -> tuple[dict[str, NDArray[Any]], Requests]:
    """Times and requests of the tokens after the first ones."""
    engine.start(policy, capacity, log=True)
    engine.nll(tokens.tolist())
    times = {name: values[FIRST_TARGET:] for name, values in engine.take_times().items()}
    requests = requests_of(engine.take_log(), engine.router["layers"])[0]
    return times, Requests(requests.fetches[FIRST_TARGET:], requests.landings[FIRST_TARGET:])


def measure_reads(reader: Reader, block: int, count: int, threads: int, random: np.random.Generator) -> dict[str, float]:
    """Latency and rate of single reads, alone and beside background reads, and the rate of all together: one round."""
    sizes = [block * factor for factor in SIZES]
    # Large reads: of small ones Python's threads would be measured.
    found: dict[str, float] = {"device_bytes_per_s": reader.together(sizes[-1], count * threads, threads, random)}
    alone = [float(np.median(reader.time(size, reader.places(size, count, random)))) for size in sizes]
    with reader.background(block, max(threads - 1, 1), random):
        busy = [float(np.median(reader.time(size, reader.places(size, count, random)))) for size in sizes]
    for prefix, seconds in (("", alone), ("busy_", busy)):
        found[f"{prefix}read_s"], found[f"{prefix}read_bytes_per_s"] = latency_line(sizes, seconds)
    return found


def latency_line(sizes: list[int], seconds: list[float]) -> tuple[float, float]:
    """``a`` and ``b`` of seconds = a + bytes / b, least squares of relative errors, neither below zero.

    Where larger reads took no longer ``b`` has no upper bound; it is then the rate of the largest read.
    """
    design = np.stack([np.ones(len(sizes)), np.asarray(sizes, np.float64)], axis=1) / np.asarray(seconds)[:, None]
    scale = np.linalg.norm(design, axis=0)
    base, slope = nnls(design / scale, np.ones(len(sizes)))[0] / scale
    return float(base), float(1 / slope) if slope > 0 else sizes[-1] / seconds[-1]


def host_compute() -> float:
    """Bytes of weights a second in a product of a matrix and a vector that no cache holds."""
    rows = HOST_BYTES // 4 // 2048
    weights, vector = np.ones((rows, 2048), np.float32), np.ones(2048, np.float32)
    begin = time.perf_counter()
    weights @ vector
    return HOST_BYTES / (time.perf_counter() - begin)


def summarize(rounds: pd.DataFrame, resamples: int = RESAMPLES) -> pd.DataFrame:
    """Median over rounds of every quantity, with a 95 % bootstrap interval."""
    draws = np.random.default_rng(1).integers(0, len(rounds), (resamples, len(rounds)))
    found = []
    for name in map(str, rounds):
        values = rounds[name].to_numpy(np.float64)
        medians = np.median(values[draws], axis=1)
        found.append({
            "quantity": name, "unit": "bytes/s" if name.endswith("bytes_per_s") else "s", "estimate": float(np.median(values)),
            "low": float(np.quantile(medians, 0.025)), "high": float(np.quantile(medians, 0.975)), "confidence": 0.95, "rounds": len(values),
        })  # fmt: skip
    return pd.DataFrame(found)


def summarize_added(rounds: Sequence[Added], top_k: int, resamples: int = RESAMPLES) -> pd.DataFrame:
    """``fetch_1_s`` ... ``fetch_K_s``, ``landing_layer_s``, ``landing_s`` and ``background_s`` with 95 % intervals, rounds resampled.

    ``background_s`` is 0 where no token ever waited for an admission: then none is late.

    Non-negative least squares of added seconds over tokens: on layers with at least 1, 2, ... K misses, so that more misses never take less; on layers
    with admissions and on admissions.
    """
    steps = np.arange(1, top_k + 1)
    designs = [
        ([(one.missing[:, :, None] >= steps).sum(axis=1) for one in rounds], [one.fetching for one in rounds]),
        ([np.stack([(one.landed > 0).sum(axis=1), one.landed.sum(axis=1)], axis=1) for one in rounds], [one.landing for one in rounds]),
    ]
    # Rounds enter by their normal equations, so that thousands of resamples are cheap.
    squares = [
        (np.stack([x.T @ x for x in xs]).astype(float), np.stack([x.T @ y for x, y in zip(xs, ys, strict=True)])) for xs, ys in designs
    ]
    full = np.array([one.saturated for one in rounds], np.float64)

    def solve(places: NDArray[np.int64]) -> NDArray[np.float64]:
        fetch, landing = (_nnls(gram[places].sum(axis=0), moment[places].sum(axis=0)) for gram, moment in squares)
        seconds, experts = full[places].sum(axis=0)
        return np.concatenate([np.cumsum(fetch), landing, [seconds / experts if experts else 0.0]])

    draws = np.random.default_rng(2).integers(0, len(rounds), (resamples, len(rounds)))
    drawn = np.stack([solve(places) for places in draws])
    return pd.DataFrame({
        "quantity": [*(f"fetch_{step}_s" for step in steps), "landing_layer_s", "landing_s", "background_s"], "unit": "s",
        "estimate": solve(np.arange(len(rounds))), "low": np.quantile(drawn, 0.025, axis=0), "high": np.quantile(drawn, 0.975, axis=0),
        "confidence": 0.95, "rounds": len(rounds),
    })  # fmt: skip


def _nnls(gram: NDArray[np.float64], moment: NDArray[np.float64]) -> NDArray[np.float64]:
    """Non-negative least squares from the normal equations: ``gram`` [N, N], ``moment`` [N]. What was never seen is 0."""
    if not gram.any():
        return np.zeros(len(moment))
    values, vectors = np.linalg.eigh(gram)
    kept = values > 1e-9 * values[-1]
    root = (vectors[:, kept] * np.sqrt(values[kept])).T
    solution: NDArray[np.float64] = nnls(root, vectors[:, kept].T @ moment / np.sqrt(values[kept]))[0]
    return solution


def profile_of(name: str, table: pd.DataFrame, io_threads: int, expert_bytes: int, expert_reads: int) -> dict[str, Any]:
    """The calibration as a file of config/host."""
    timing: dict[str, Any] = {row["quantity"]: float(f"{row['estimate']:.4g}") for row in table.to_dict("records")}
    steps = [name for name in timing if re.fullmatch(r"fetch_\d+_s", name)]
    timing["fetch_s"] = [timing.pop(name) for name in steps]
    return {
        "name": name, "assumed": False,
        "timing": {**timing, "io_threads": io_threads, "expert_bytes": expert_bytes, "expert_reads": expert_reads},
    }  # fmt: skip


def load_profile(path: Path) -> dict[str, Any]:
    """A host's file.

    Raises:
        UserError: missing, or not a profile.
    """
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{path}: no such file; give the name of a file of config/host, or a profile.yaml that calibrate_host wrote"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise UserError(f"{path}: not YAML ({str(problem).splitlines()[0]})") from None
    if not isinstance(found, dict) or "name" not in found:
        raise UserError(f"{path}: not a host's profile; it needs a name and timing")
    return found
