"""calibrate_host without an engine: reads of a real file, the line through them, intervals over rounds, and the profile."""

from __future__ import annotations

from pathlib import Path
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


class StandIn:
    """Three layers of eight experts, two chosen: a layer with n misses adds n ms, one with admissions 0.5 ms and 0.25 ms for each."""

    def __init__(self) -> None:
        self.router = {"layers": 3, "experts": 8, "top_k": 2}
        self.most = 2  # admissions of a token above which it waits

    def start(self, policy: dict[str, Any], capacity: int, *, log: bool) -> None:
        assert log
        self.policy, self.capacity = policy["name"], capacity
        self.random = np.random.default_rng(capacity)

    def nll(self, tokens: list[int]) -> None:
        steps = len(tokens) - 1
        asked = self.random.integers(0, 3, (steps, 3)) * (self.capacity < 8)
        t, layer = np.repeat(np.argwhere(asked >= 0), asked.ravel(), axis=0).T
        one, none = (
            {"document": np.zeros(len(t), int), "t": t, "layer": layer},
            {name: np.zeros(0, int) for name in ("document", "t", "layer")},
        )
        hits = {"document": np.zeros(steps, int), "t": np.arange(steps), "layer": np.zeros(steps, int), "verdict": np.zeros(steps, int)}
        misses = self.policy == "misses"
        calls = {name: np.concatenate([hits[name], one[name]]) for name in one} if misses else hits
        calls["verdict"] = np.concatenate([hits["verdict"], np.ones(len(t), int)]) if misses else hits["verdict"]
        self.log = {"calls": calls, "landings": none if misses else one}
        parts = {
            "compute": np.full(steps, 0.006),
            "policy": np.full(steps, 0.003),
            "background": np.zeros(steps),
            "waiting": np.zeros(steps),
        }
        parts["compute"][:FIRST_TARGET] = 1.0
        if misses:
            parts["waiting"] = 1e-3 * asked.sum(axis=1)
        else:
            parts["background"] = 0.5e-3 * (asked > 0).sum(axis=1) + 0.25e-3 * asked.sum(axis=1)
            parts["waiting"] = 0.02 * (asked.sum(axis=1) > self.most)
        self.times = {**parts, "wall": sum(parts.values())}

    def take_times(self) -> dict[str, Any]:
        return self.times

    def take_log(self) -> dict[str, Any]:
        return self.log


def test_a_resident_round_divides_by_layers_and_leaves_first_tokens_out() -> None:
    engine: Any = StandIn()
    assert calibrate.decode_resident(engine, np.arange(FIRST_TARGET + 5)) == pytest.approx({"compute_s": 0.002, "policy_s": 0.001})


def test_what_misses_and_admissions_add_is_found_again() -> None:
    engine: Any = StandIn()
    words = np.arange(FIRST_TARGET + 60)
    resident = calibrate.decode_resident(engine, words)
    rounds = [calibrate.decode_with_reads(engine, words, [capacity, 4], resident) for capacity in (2, 3)]
    table = calibrate.summarize_added(rounds, 2, 50).set_index("quantity")
    expected = {"fetch_1_s": 1e-3, "fetch_2_s": 2e-3, "landing_layer_s": 0.5e-3, "landing_s": 0.25e-3}
    for name, seconds in expected.items():
        assert table.loc[name, "estimate"] == pytest.approx(seconds)
        assert table.loc[name, "low"] == pytest.approx(seconds) == table.loc[name, "high"]
    seconds, landed = np.array([one.saturated for one in rounds]).sum(axis=0)
    assert landed == sum(
        one.landed[one.landed.sum(axis=1) > 2].sum() for one in rounds
    )  # only tokens that waited say how fast reads can be
    assert table.loc["background_s", "estimate"] == pytest.approx(seconds / landed)
    engine.most = 99
    never = calibrate.summarize_added([calibrate.decode_with_reads(engine, words, [2, 4], resident)] * 2, 2, 10).set_index("quantity")
    assert never.loc["background_s", "estimate"] == 0
    profile = calibrate.profile_of("mine", table.reset_index(), 8, 1000, 3)["timing"]
    assert profile["fetch_s"] == pytest.approx([1e-3, 2e-3]) and "fetch_1_s" not in profile


def test_misses_that_never_happened_add_nothing_more() -> None:
    """No layer ever misses three: its time is that of two, and more misses never take less."""
    random = np.random.default_rng(0)
    missing = random.integers(0, 3, (80, 2))
    seconds = np.array([0.0, 2e-3, 1.5e-3])[missing].sum(axis=1)  # noise may make two cheaper than one
    one = calibrate.Added(seconds, missing, np.zeros(80), np.zeros((80, 2), int), (1.0, 0))
    found = calibrate.summarize_added([one, one], 3, 10).set_index("quantity")["estimate"]
    assert 0 < found["fetch_1_s"] <= found["fetch_2_s"] == found["fetch_3_s"]
    assert found["landing_s"] == found["landing_layer_s"] == found["background_s"] == 0


def test_capacities_hold_a_tokens_experts_and_miss_some() -> None:
    assert calibrate.capacities_of([0.5, 0.01, 0.125, 1.0], 256, 8) == [32, 128, 256]
    for shares in ([1.0], [0.01]):
        with pytest.raises(UserError, match=r"no share from 0\.0312 to below 1"):
            calibrate.capacities_of(shares, 256, 8)


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
