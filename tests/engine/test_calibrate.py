"""calibrate_host without an engine: reads of a real file, the line through them, intervals over rounds, and the profile."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from expertmiss.config import compose
from expertmiss.engine import calibrate
from expertmiss.engine.reads import PAGE, Reader, expert_blocks
from expertmiss.errors import UserError
from expertmiss.evaluation import FIRST_TARGET
from expertmiss.paths import project_root
from expertmiss.simulate.time_model import HostTimes


def test_a_line_through_latencies_has_no_negative_part() -> None:
    base, rate = calibrate.latency_line([1000, 4000, 16000], [0.0015, 0.003, 0.009])  # 1 ms + bytes / 2 MB/s
    assert base == pytest.approx(1e-3) and rate == pytest.approx(2e6)
    assert calibrate.latency_line([1000, 4000, 16000], [0.003, 0.002, 0.001])[1] == pytest.approx(16e6)  # the largest read's own rate
    assert calibrate.latency_line([1000, 4000, 16000], [0.001, 0.004, 0.016])[0] == pytest.approx(0, abs=1e-9)


def test_intervals_hold_the_median() -> None:
    table = calibrate.summarize(pd.DataFrame({"read_s": [1.0, 2.0, 3.0, 2.0], "read_bytes_per_s": [5.0, 9.0, 7.0, 6.0]}))
    rows = table.set_index("quantity")
    assert rows.loc["read_s", "estimate"] == 2 and 1 <= rows.loc["read_s", "low"] <= 2 <= rows.loc["read_s", "high"] <= 3
    assert rows.loc["read_bytes_per_s", "estimate"] == 6.5 and rows.loc["read_bytes_per_s", "unit"] == "bytes/s"


def test_reads_of_a_file_take_time_alone_and_beside_others(tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(bytes(256 * PAGE))
    reader = Reader(path, direct=False)
    random = np.random.default_rng(0)
    places = reader.places(3 * PAGE, 50, random)
    assert (places % PAGE == 0).all() and places.max() + 3 * PAGE <= 256 * PAGE
    found = calibrate.measure_reads(reader, PAGE, 4, 2, random)
    assert set(found) == {"read_s", "read_bytes_per_s", "busy_read_s", "busy_read_bytes_per_s", "device_bytes_per_s"}
    assert all(value >= 0 for value in found.values()) and found["device_bytes_per_s"] > 0
    reader.close()


def test_the_blocks_are_the_experts_bytes(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")

    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "qwen3moe")
    weights = {
        (layer, part): np.full((4, 8, 16), 10 * layer + place, np.float32)
        for layer in range(2) for place, part in enumerate(("gate", "up", "down"))
    }  # fmt: skip
    for (layer, part), values in weights.items():
        writer.add_tensor(f"blk.{layer}.ffn_{part}_exps.weight", values + np.arange(4, dtype=np.float32)[:, None, None])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    blocks = expert_blocks(path)
    assert blocks.shape == (2, 4, 3, 2)
    offset, size = blocks[1, 2, 0]
    assert size == 8 * 16 * 4
    np.testing.assert_array_equal(np.frombuffer(path.read_bytes()[offset : offset + size], np.float32), 12.0)


def test_a_resident_round_divides_by_layers_and_leaves_first_tokens_out() -> None:
    tokens = np.arange(FIRST_TARGET + 5)
    times = {name: np.full(len(tokens) - 1, 0.006) for name in ("compute", "policy")}
    times["compute"][:FIRST_TARGET] = 1.0
    engine: Any = SimpleNamespace(router={"layers": 3}, reset=lambda document: None, nll=lambda ids: None, take_times=lambda: times)
    assert calibrate.decode_resident(engine, tokens) == pytest.approx({"compute_s": 0.002, "policy_s": 0.002})


def test_a_profile_is_a_file_of_the_host_group(tmp_path: Path) -> None:
    quantities = [
        "compute_s", "policy_s", "read_s", "read_bytes_per_s", "busy_read_s", "busy_read_bytes_per_s", "device_bytes_per_s",
        "host_compute_bytes_per_s",
    ]  # fmt: skip
    table = pd.DataFrame({"quantity": quantities, "estimate": 1.25})
    path = tmp_path / "profile.yaml"
    path.write_text(yaml.safe_dump(calibrate.profile_of("mine", table, 8, 73728, 3)))
    profile = calibrate.load_profile(path)
    assert HostTimes.of(profile).expert_bytes == 73728 and not profile["assumed"]
    for name in ("rtx3090_nvme", "rtx3090_ram"):
        config = compose(project_root(), overrides=[f"host={name}"])
        assert config["host"]["assumed"] and config["host"]["name"].endswith("assumed") and HostTimes.of(config["host"]).compute_s > 0
        with pytest.raises(UserError, match="is assumed, so nothing can be measured on it"):
            calibrate.refuse_assumed(config["host"])
    (tmp_path / "other.yaml").write_text("[1]")
    with pytest.raises(UserError, match="not a host's profile"):
        calibrate.load_profile(tmp_path / "other.yaml")
