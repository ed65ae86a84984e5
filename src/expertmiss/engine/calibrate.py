"""Stage calibrate_host: what the time model needs to know of this host with this model.

Inputs:  the model's GGUF file, the compiled engine, ``tokens.parquet`` (text of the calibration split).
Outputs: ``calibration.parquet`` (every quantity with its interval over rounds), ``profile.yaml`` (a file that the configuration group ``host``
         reads).
Steps:   rounds of: tokens with everything resident (computing, policy core); single reads of several sizes, alone and beside background reads
         (latency = a + bytes / b); all reads together. Medians over rounds.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray
from scipy.optimize import nnls

from expertmiss.engine.reads import Reader, expert_blocks
from expertmiss.engine.session import Engine, EngineOptions
from expertmiss.errors import UserError
from expertmiss.evaluation import FIRST_TARGET
from expertmiss.files import write_text
from expertmiss.progress import Progress
from expertmiss.provenance import Labels, write_run
from expertmiss.stages import Context
from expertmiss.stats.tables import write_table
from expertmiss.traces.capture import choose_documents, read_tokens

STAGE = "calibrate_host"
RESIDENT = {
    "name": "resident", "miss_rule": {"name": "fetch_all"}, "eviction": {"name": "lru"}, "admission": {"name": "fetched_only"}, "initial": "random",
}  # fmt: skip
SIZES = (1, 4, 16)
"""Sizes of the reads, in blocks of one expert's matrix: the slope over bytes needs several."""
RESAMPLES = 2000
HOST_BYTES = 64 << 20
"""Weights that the processor multiplies at once: more than its caches hold."""


def engine_options(cfg: dict[str, Any], context: int) -> EngineOptions:
    """The engine as the section ``engine`` of the configuration describes it; K/V in float32, as in the agreement gates."""
    return EngineOptions(
        store=cfg["store"], device=cfg["device"], cache_type="f32", context=context, threads=cfg["threads"], io_threads=cfg["io_threads"]
    )


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
    session.start(RESIDENT, session.router["experts"])
    reader = Reader(gguf, options["store"] == "direct")
    random = np.random.default_rng(0)
    found = []
    with Progress(rounds + 1, "calibrate host", "round", context.journal) as bar:
        for number in range(rounds + 1):
            computed = decode_resident(session, np.asarray(texts[number % len(texts)])[:length])
            measured = measure_reads(reader, int(blocks[..., 1].max()), options["calibration_reads"], options["io_threads"], random)
            if number > 0:  # the first round warms up
                found.append({**computed, **measured, "host_compute_bytes_per_s": host_compute()})
            bar.update()
    reader.close()
    table = summarize(pd.DataFrame(found))
    expert = int(blocks[0, 0, :, 1].sum())
    profile = profile_of(host["name"], table, options["io_threads"], expert, reads)
    labels = Labels(
        cfg["model"]["substrate"], "own", "measured", host["name"], "exploratory", {"rounds": rounds, "tokens": rounds * length},
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
    engine.reset(0)
    engine.nll(tokens.tolist())
    times = engine.take_times()
    layers = engine.router["layers"]
    return {f"{name}_s": float(times[name][FIRST_TARGET:].mean()) / layers for name in ("compute", "policy")}


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


def profile_of(name: str, table: pd.DataFrame, io_threads: int, expert_bytes: int, expert_reads: int) -> dict[str, Any]:
    """The calibration as a file of config/host."""
    timing = {row["quantity"]: float(f"{row['estimate']:.4g}") for row in table.to_dict("records")}
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
