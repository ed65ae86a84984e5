"""The time model: cases worked out by hand, and what must hold for any host."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expertmiss.errors import UserError
from expertmiss.simulate.time_model import HostTimes, Requests, predict, requests_of, service_time

# One read: 1 ms + 10 kB / 10 MB/s = 2 ms; under background 3 ms + 1 ms = 4 ms. Two reads an expert, four at once.
HOST = HostTimes(
    compute_s=0.005, policy_s=0.001, read_s=0.001, read_bytes_per_s=10e6, busy_read_s=0.003, busy_read_bytes_per_s=10e6, device_bytes_per_s=100e6,
    io_threads=4, host_compute_bytes_per_s=20e6, expert_bytes=20_000, expert_reads=2,
)  # fmt: skip


def requests(fetches: list[list[int]], landings: list[list[int]] | None = None) -> Requests:
    return Requests(np.array(fetches), np.array(landings) if landings else np.zeros((len(fetches), len(fetches[0])), np.int64))


def test_reads_run_in_waves_of_the_io_threads() -> None:
    """Two experts are four reads: one wave; three are six: two waves."""
    np.testing.assert_allclose(service_time(np.array([0, 1, 2, 3, 4]), HOST), [0, 0.002, 0.002, 0.004, 0.004])


def test_the_devices_bandwidth_bounds_many_reads() -> None:
    """Ten experts are 200 kB: 20 waves of 2 ms with one thread, but at 1 MB/s for all together 1 ms + 200 ms."""
    slow = replace(HOST, device_bytes_per_s=1e6, io_threads=20)
    np.testing.assert_allclose(service_time(np.array([10]), slow), [0.201])


def test_a_token_waits_layer_by_layer() -> None:
    found = predict(requests([[1, 3], [0, 0]]), HOST)
    np.testing.assert_allclose(found.compute, [0.010, 0.010])
    np.testing.assert_allclose(found.policy, [0.002, 0.002])
    np.testing.assert_allclose(found.waiting, [0.006, 0])
    np.testing.assert_allclose(found.wall, [0.018, 0.012])


def test_background_reads_hide_behind_computing_and_slow_the_fetches() -> None:
    """Four experts land at token 1: 4 ms of reads in the 12 ms of token 0, so a third of its fetch runs at 4 ms instead of 2."""
    found = predict(requests([[1, 0], [0, 0]], [[0, 0], [4, 0]]), HOST)
    np.testing.assert_allclose(found.background, 0)
    np.testing.assert_allclose(found.waiting, [0.002 + 0.002 / 3, 0])


def test_what_does_not_fit_behind_a_token_is_waited_for() -> None:
    """14 experts are 28 reads, seven waves of 2 ms, 2 ms more than the 12 ms of a token."""
    found = predict(requests([[0, 0], [0, 0]], [[0, 0], [7, 7]]), HOST)
    np.testing.assert_allclose(found.background, [0, 0.002])


def test_a_miss_may_be_computed_where_it_lies() -> None:
    """Three experts of 20 kB at 20 MB/s: 3 ms, one after the other."""
    np.testing.assert_allclose(predict(requests([[2, 1]]), HOST, "host_compute").waiting, [0.003])


CALIBRATED = replace(HOST, fetch_s=(0.003, 0.004, 0.004), landing_layer_s=0.0005, landing_s=0.0001, background_s=0.002)


def test_a_calibrated_host_adds_what_it_measured() -> None:
    found = predict(requests([[1, 3], [0, 0]], [[0, 0], [2, 0]]), CALIBRATED)
    np.testing.assert_allclose(found.waiting, [0.007, 0])
    np.testing.assert_allclose(found.background, [0, 0.0007])  # 4 ms of reads fit behind the 12 ms of a token
    np.testing.assert_allclose(found.compute + found.policy, 0.012)


def test_late_admissions_of_a_calibrated_host() -> None:
    """14 experts take 28 ms when reads never stop; the token offers 12 ms and what the landings themselves cost, 2.4 ms."""
    found = predict(requests([[0, 0], [0, 0]], [[0, 0], [7, 7]]), CALIBRATED)
    np.testing.assert_allclose(found.background, [0, 0.0024 + 0.028 - 0.0144])


def test_a_log_becomes_counts() -> None:
    calls = {
        "document": np.array([3, 3, 3, 3, 4, 4]), "t": np.array([0, 0, 1, 1, 0, 1]), "layer": np.array([0, 0, 1, 1, 1, 0]),
        "verdict": np.array([1, 0, 4, 1, 2, 0], np.uint8),
    }  # fmt: skip
    landings = {"document": np.array([4]), "t": np.array([1]), "layer": np.array([0])}
    found = requests_of({"calls": calls, "landings": landings}, 2)
    assert found[3].fetches.tolist() == [[1, 0], [0, 2]] and found[3].landings.sum() == 0
    assert found[4].fetches.sum() == 0 and found[4].landings.tolist() == [[0, 0], [1, 0]]


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="host 'here': has no compute_s"):
        HostTimes.of({"name": "here", "timing": {}})
    with pytest.raises(UserError, match=r"host.timing.read_bytes_per_s: 0 is no time or rate"):
        replace(HOST, read_bytes_per_s=0)
    with pytest.raises(UserError, match=r"host.timing.fetch_s: not times that rise"):
        replace(HOST, fetch_s=(0.002, 0.001))
    with pytest.raises(UserError, match=r"calibrated up to 3 misses of a layer"):
        predict(requests([[4]]), CALIBRATED)
    with pytest.raises(UserError, match="did you mean 'fetch'"):
        predict(requests([[0]]), HOST, "fetsch")


positive = st.floats(1e-6, 1e-1)
rates = st.floats(1e4, 1e10)
hosts = st.builds(
    HostTimes, compute_s=positive, policy_s=positive, read_s=positive, read_bytes_per_s=rates, busy_read_s=positive, busy_read_bytes_per_s=rates,
    device_bytes_per_s=rates, io_threads=st.integers(1, 32), host_compute_bytes_per_s=rates, expert_bytes=st.integers(1_000, 10_000_000),
    expert_reads=st.integers(1, 3),
)  # fmt: skip
counts = st.lists(st.lists(st.integers(0, 20), min_size=3, max_size=3), min_size=4, max_size=4)


@settings(deadline=None, max_examples=60)
@given(hosts, counts, counts, st.sampled_from(["fetch", "host_compute"]))
def test_more_bytes_never_take_less_time(host: HostTimes, fetches: list[list[int]], landings: list[list[int]], service: str) -> None:
    before = predict(requests(fetches, landings), host, service).wall
    larger = predict(requests(fetches, landings), replace(host, expert_bytes=2 * host.expert_bytes), service).wall
    more = predict(Requests(np.array(fetches) + 1, np.array(landings)), host, service).wall
    background = predict(Requests(np.array(fetches), np.array(landings) + 1), host, service).wall
    for other in (larger, more, background):
        assert (other >= before * (1 - 1e-12)).all()


@settings(deadline=None, max_examples=60)
@given(hosts, st.sampled_from(["fetch", "host_compute"]))
def test_without_misses_a_token_takes_its_computing(host: HostTimes, service: str) -> None:
    np.testing.assert_allclose(predict(requests([[0, 0, 0]] * 2), host, service).wall, 3 * (host.compute_s + host.policy_s))
