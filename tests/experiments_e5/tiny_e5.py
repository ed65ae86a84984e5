"""E5 on invented text with a stand-in for the engine: the policy core over recorded routers, with times that the time model would give. No result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from expertmiss._core import Stepper
from expertmiss.experiments.e5 import analyze
from expertmiss.experiments.e5 import run as engine_run
from expertmiss.simulate.time_model import HostTimes, predict, requests_of
from expertmiss.traces import capture
from expertmiss.traces.format import Trace
from tests.experiments.tiny_study import CLAIMS, CONTEXT, RULES, make_setting

EXPERT_BYTES, EXPERT_READS = 36_864, 3
HOST = HostTimes(
    compute_s=1e-4, policy_s=1e-5, read_s=2e-4, read_bytes_per_s=1e8, busy_read_s=3e-4, busy_read_bytes_per_s=1e8, device_bytes_per_s=1e9,
    io_threads=8, host_compute_bytes_per_s=1e9, expert_bytes=EXPERT_BYTES, expert_reads=EXPERT_READS,
)  # fmt: skip


class StandIn:
    """The engine's interface over the routers of a trace that holds every expert; NLL rises with the substituted mass of the token."""

    trace: Trace
    started: int = 0
    jitter: float = 0.0

    def __init__(self, path: Path, options: Any) -> None:
        self.router = self.trace.meta.geometry()
        self.options = options

    def start(self, policy: dict[str, Any], capacity: int, counts: NDArray[np.int64], seed: int = 0, *, log: bool = False) -> None:
        type(self).started += 1
        self.stepper = Stepper(self.router, policy, capacity, counts, seed, log=True, kl=False)
        self.random = np.random.default_rng(type(self).started)

    def reset(self, document: int) -> None:
        self.stepper.reset(document)
        self.stepper.take_log()
        self.document = document
        self.times = {name: np.zeros(0) for name in (*engine_run.SECONDS, *engine_run.BYTES)}

    def nll(self, tokens: list[int]) -> NDArray[np.float64]:
        rows = np.flatnonzero(self.trace.document == self.document)[: len(tokens) - 1]
        assert self.trace.token[rows].tolist() == tokens[:-1]
        losses = []
        for row in rows:
            before = self.stepper.meters()["mass"].sum()
            for index, layer in enumerate(self.trace.layers):
                logits = np.empty(self.trace.meta.experts, np.float32)
                logits[layer.ids[row]] = layer.z[row]
                self.stepper.step(index, logits)
            losses.append(2.0 + 0.1 * (self.stepper.meters()["mass"].sum() - before))
        requests = requests_of(self.stepper.take_log(), self.router["layers"])[self.document]
        found = predict(requests, HOST)
        noise = 1 + self.jitter * self.random.random(len(rows))
        parts = {
            "compute": found.compute * noise,
            "waiting": found.waiting + found.background,
            "policy": found.policy,
            "background": 0 * found.policy,
        }
        counts = {"fetch_bytes": requests.fetches, "admission_bytes": requests.landings}
        self.times = {
            "wall": sum(parts.values()), **parts,
            **{name: values.sum(axis=1) * EXPERT_BYTES for name, values in counts.items()},
        }  # fmt: skip
        return np.array(losses)

    def take_times(self) -> dict[str, NDArray[Any]]:
        return self.times

    def meters(self) -> dict[str, NDArray[Any]]:
        return {name: values for name, values in self.stepper.meters().items() if name != "kl"}

    def traffic(self) -> dict[str, int]:
        return {"differences": 0}


def make_setting_e5(folder: Path, monkeypatch: Any) -> dict[str, Any]:
    """Text, traces, the configuration and a profile in ``folder``; run_engine uses the stand-in from now on."""
    setting = make_setting(folder)
    capture.run(setting["recording"], out=folder / "exploratory", context=CONTEXT, tokens=folder / "tokens.parquet", split="exploratory")
    StandIn.trace, StandIn.started, StandIn.jitter = Trace.open(folder / "exploratory" / "trace.safetensors"), 0, 0.0
    monkeypatch.setattr(engine_run, "Engine", StandIn)
    blocks = np.zeros((1, 1, EXPERT_READS, 2), np.int64)
    blocks[..., 1] = EXPERT_BYTES // EXPERT_READS
    monkeypatch.setattr(engine_run, "expert_blocks", lambda path: blocks)
    for name in ("model.gguf", "build.json"):
        (folder / name).write_text("a stand-in")
    host = {"name": "this_host", "timing": {name: getattr(HOST, name) for name in HOST.__dataclass_fields__}}
    (folder / "profile.yaml").write_text(yaml.safe_dump(host))
    config = setting["config"]
    setting["e5"] = {
        "model": config["model"], "host": config["host"], "corpus": {"name": "invented"}, "engine": config["engine"],
        "e5": {**config["e5"], "documents": 4, "repeats": 2, "residency": [0.5], "timed_documents": 2},
    }  # fmt: skip
    return setting


def run_engine(setting: dict[str, Any], out: Path) -> None:
    """The stage into ``out``."""
    folder = setting["folder"]
    engine_run.run(
        setting["e5"], out=out, context=CONTEXT, gguf=folder / "model.gguf", engine=folder / "build.json", tokens=folder / "tokens.parquet",
        calibration=folder / "calibration" / "trace.safetensors", claims=CLAIMS, rules=RULES,
    )  # fmt: skip


def analyse(setting: dict[str, Any], run: Path, out: Path) -> None:
    """The statistics of the run in ``run`` into ``out``."""
    folder = setting["folder"]
    cfg = {"stats": {**setting["config"]["stats"], "resamples": 120}, "model": {"substrate": "random_weights"}}
    analyze.run(
        cfg, out=out, context=CONTEXT, cells=run / "cells.parquet", times=run / "times.parquet", profile=folder / "profile.yaml",
        trace=folder / "exploratory" / "trace.safetensors", calibration=folder / "calibration" / "trace.safetensors", claims=CLAIMS, rules=RULES,
    )  # fmt: skip
