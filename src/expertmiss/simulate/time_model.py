"""From what a policy asked for to the time a token takes, on a host that a profile describes.

Per token and layer the model needs the experts that the step waits for (``fetches``) and those that land in the background (``landings``). A step's
reads are under way together, up to the host's I/O threads; background reads take the time in which the layers compute, and only what does not fit
there is waited for. Nothing is hidden behind a step's own reads: its experts are needed at once.

    time(t) = L (compute + policy) + sum over layers of wait(t, l) + late(t)

Known limits: no queueing between a step's reads and background reads beyond the slower latency, no reads that go on over several tokens, and constant
computing time (no growth with the context).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expertmiss._core import VERDICTS
from expertmiss.errors import UserError, suggest

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
WAITED = [VERDICTS.index("fetch"), VERDICTS.index("fallback_fetch")]
MISS_SERVICES = ("fetch", "host_compute")


@dataclass(frozen=True)
class HostTimes:
    """A host with one model on it; times in seconds.

    Attributes:
        compute_s: computing of one token in one layer, everything resident (what comes before and after the layers is shared out among them).
        policy_s: the policy core, one token in one layer.
        read_s, read_bytes_per_s: one read takes ``read_s + bytes / read_bytes_per_s``.
        busy_read_s, busy_read_bytes_per_s: the same while background reads are under way.
        device_bytes_per_s: all reads together.
        io_threads: reads under way at once.
        host_compute_bytes_per_s: weights that the host's own processor multiplies, for ``miss_service: host_compute``.
        expert_bytes: one expert.
        expert_reads: reads of one expert (its matrices lie apart in a GGUF file).
    """

    compute_s: float
    policy_s: float
    read_s: float
    read_bytes_per_s: float
    busy_read_s: float
    busy_read_bytes_per_s: float
    device_bytes_per_s: float
    io_threads: int
    host_compute_bytes_per_s: float
    expert_bytes: int
    expert_reads: int

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            least = 0.0 if item.name in ("compute_s", "policy_s", "read_s", "busy_read_s") else None
            if not (value >= least if least is not None else value > 0):
                raise UserError(f"host.timing.{item.name}: {value} is no time or rate; calibrate the host again")

    @classmethod
    def of(cls, host: Mapping[str, Any]) -> HostTimes:
        """From ``host`` of the configuration.

        Raises:
            UserError: the host has no profile.
        """
        timing = host.get("timing") or {}
        missing = [item.name for item in fields(cls) if timing.get(item.name) is None]
        if missing:
            raise UserError(
                f"host '{host['name']}': has no {missing[0]}; calibrate it (stage calibrate_host), or choose a file of config/host that has"
            )
        return cls(**{item.name: timing[item.name] for item in fields(cls)})


@dataclass(frozen=True)
class Requests:
    """What one document's steps asked the slow tier for: int64 [T, L] each."""

    fetches: Counts
    landings: Counts


@dataclass(frozen=True)
class Predicted:
    """Seconds [T]: ``wall`` is the sum of the other four."""

    compute: Array
    policy: Array
    waiting: Array
    background: Array

    @property
    def wall(self) -> Array:
        return self.compute + self.policy + self.waiting + self.background


def requests_of(log: Mapping[str, Any], layers: int) -> dict[int, Requests]:
    """Every document's requests from the core's decision log.

    Args:
        log: ``calls`` and ``landings`` as of ``_core.Log``.
        layers: L.
    """
    calls, landings = log["calls"], log["landings"]
    waited = np.isin(calls["verdict"], WAITED)
    found = {}
    for document in np.unique(calls["document"]):
        rows = calls["document"] == document
        shape = (int(calls["t"][rows].max()) + 1, layers)  # every token makes calls in every layer
        counts = [np.zeros(shape, np.int64), np.zeros(shape, np.int64)]
        own = waited & rows
        np.add.at(counts[0], (calls["t"][own], calls["layer"][own]), 1)
        own = landings["document"] == document
        np.add.at(counts[1], (landings["t"][own], landings["layer"][own]), 1)
        found[int(document)] = Requests(*counts)
    return found


def service_time(experts: NDArray[Any], host: HostTimes, busy: Array | float = 0.0) -> Array:
    """Seconds until ``experts`` [...] asked for together have arrived.

    Args:
        busy: share of the time in which background reads are under way, 0 to 1, broadcast against ``experts``.
    """
    share = np.asarray(busy, np.float64)
    waves = np.ceil(experts * host.expert_reads / host.io_threads)
    size = host.expert_bytes / host.expert_reads
    alone = host.read_s + size / host.read_bytes_per_s
    # Background reads never help, whatever a noisy calibration says.
    slower = max(alone, host.busy_read_s + size / host.busy_read_bytes_per_s)
    latency = waves * (alone + share * (slower - alone))
    together = np.where(experts > 0, host.read_s + experts * host.expert_bytes / host.device_bytes_per_s, 0.0)
    longest: Array = np.maximum(latency, together)
    return longest


def predict(requests: Requests, host: HostTimes, miss_service: str = "fetch") -> Predicted:
    """Time of every token of a document.

    Args:
        miss_service: ``fetch``, or ``host_compute``: experts that the step would wait for are computed where they lie, one after the other. It
            prices the misses of this run; it does not say what the cache would have held without those fetches.

    Raises:
        UserError: no such service.
    """
    if miss_service not in MISS_SERVICES:
        raise UserError(f"miss_service '{miss_service}': no such service; {suggest(miss_service, MISS_SERVICES)}")
    tokens, layers = requests.fetches.shape
    compute, policy = np.full(tokens, layers * host.compute_s), np.full(tokens, layers * host.policy_s)
    # What lands at a token was read while the token before it was computed.
    work = service_time(requests.landings.sum(axis=1), host)
    window = layers * (host.compute_s + host.policy_s)
    following = np.append(work[1:], 0.0)
    busy = np.divide(following, window, out=np.zeros_like(following), where=following > 0) if window > 0 else (following > 0).astype(float)
    late = np.where(work > 0, np.maximum(work - window, 0.0), 0.0)
    if miss_service == "fetch":
        waiting = service_time(requests.fetches, host, np.minimum(busy, 1.0)[:, None]).sum(axis=1)
    else:
        waiting = requests.fetches.sum(axis=1) * host.expert_bytes / host.host_compute_bytes_per_s
    return Predicted(compute, policy, waiting, late)
