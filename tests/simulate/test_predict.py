"""``expertmiss predict``: the parts add up, an assumed host says so, and a host without times is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from expertmiss.cli import main
from expertmiss.errors import UserError
from expertmiss.paths import project_root
from expertmiss.policies import request_counts, simulate
from expertmiss.simulate.predict import predict_one
from expertmiss.simulate.time_model import HostTimes
from expertmiss.traces.format import Trace, write_trace
from tests.traces.traces_for_tests import random_trace


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "trace.safetensors"
    write_trace(file, *random_trace(seed=4, depth=16))
    return file


def milliseconds(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"^  (\w[\w ]*?) +([\d.]+) ms", text, re.M)}


def test_the_command_says_what_is_assumed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = ["policy=fetch_all", "--residency", "0.375", "--calibration", str(path)]
    main(["predict", str(path), *overrides, "--host", "rtx3090_nvme"])
    text = capsys.readouterr().out
    assert "host rtx3090_nvme_assumed (ASSUMED, nobody measured it)" in text
    found = milliseconds(text)
    assert found["time per token"] == pytest.approx(sum(value for name, value in found.items() if name != "time per token"), abs=2e-3)


def test_computing_misses_costs_their_bytes(path: Path) -> None:
    timing = {
        "compute_s": 0.0, "policy_s": 0.0, "read_s": 1e-4, "read_bytes_per_s": 1e9, "busy_read_s": 1e-4, "busy_read_bytes_per_s": 1e9,
        "device_bytes_per_s": 1e9, "io_threads": 8, "host_compute_bytes_per_s": 1e6, "expert_bytes": 1000, "expert_reads": 1,
    }  # fmt: skip
    policy = {"name": "fetch_all", "miss_rule": {"name": "fetch_all"}}
    text = predict_one(path, policy, 6 / 16, path, {"name": "x", "timing": timing}, "host_compute")
    trace = Trace.open(path)
    fetches = simulate(trace, policy, 6, counts=request_counts(trace))["fetches"].sum()
    assert fetches > 0 and milliseconds(text)["waiting"] == pytest.approx(fetches / trace.meta.tokens, abs=1e-3)


def test_a_host_without_times_is_refused(path: Path) -> None:
    assert main(["config", "host=this_host"]) == 0
    with pytest.raises(UserError, match=r"host 'this_host': has no compute_s; calibrate it"):
        HostTimes.of({"name": "this_host", "timing": {}})
    with pytest.raises(SystemExit):
        main(["predict", str(path), "--host", str(project_root() / "config" / "host" / "this_host.yaml")])
