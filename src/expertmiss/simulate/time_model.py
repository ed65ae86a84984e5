"""From what a policy asked for to the time a token takes, on a host that a profile describes.

Per token and layer the model needs the experts that the step waits for (``fetches``) and those that land in the background (``landings``). A step's
reads are under way together, up to the host's I/O threads; background reads take the time in which the layers compute, and only what does not fit
there is waited for. Nothing is hidden behind a step's own reads: its experts are needed at once.

    time(t) = L (compute + policy) + sum over layers of wait(t, l) + landed(t) + late(t)

Where the engine was calibrated, ``wait`` is what a layer with so many misses adds to a token of the engine, ``landed`` what the decoding thread and the
processor lose to admissions, and ``late`` follows from the time of an expert when background reads never stop. Where it was not (assumed hosts),
``wait`` and ``late`` are put together from single reads and ``landed`` is nothing.

Known limits: no queueing between a step's reads and background reads, no background reads while a token waits or over several tokens, and constant
computing time (no growth with the context).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from itertools import pairwise
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
        fetch_s: what a layer with 1, 2, ... misses adds to a token, up to top-K; empty where nobody measured it.
        landing_layer_s, landing_s: what admissions add to a token for each layer with some, and for each expert.
        background_s: beside ``fetch_s``, time of an expert when background reads never stop; 0: none is ever late.
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
    fetch_s: tuple[float, ...] = ()
    landing_layer_s: float = 0.0
    landing_s: float = 0.0
    background_s: float = 0.0

    def __post_init__(self) -> None:
        for item in fields(self):
            if item.name == "fetch_s":
                continue
            value = getattr(self, item.name)
            if not (value >= 0 if item.name.endswith("_s") and not item.name.endswith("per_s") else value > 0):
                raise UserError(f"host.timing.{item.name}: {value} is no time or rate; calibrate the host again")
        if not all(later >= sooner for sooner, later in pairwise((0.0, *self.fetch_s))):
            raise UserError("host.timing.fetch_s: not times that rise with the number of misses; calibrate the host again")

    @classmethod
    def of(cls, host: Mapping[str, Any]) -> HostTimes:
        """From ``host`` of the configuration.

        Raises:
            UserError: the host has no profile.
        """
        timing = host.get("timing") or {}
        missing = [item.name for item in fields(cls) if item.default is MISSING and timing.get(item.name) is None]
        if missing:
            raise UserError(
                f"host '{host['name']}': has no {missing[0]}; calibrate it (stage calibrate_host), or choose a file of config/host that has"
            )
        known = {item.name: timing[item.name] for item in fields(cls) if timing.get(item.name) is not None}
        steps = known.get("fetch_s", ())
        if not isinstance(steps, list | tuple):
            raise UserError("host.timing.fetch_s: not a list of times; calibrate the host again")
        return cls(**known | {"fetch_s": tuple(steps)})


@dataclass(frozen=True)
class Requests:
    """What one document's steps asked the slow tier for: int64 [T, L] each."""

    fetches: Counts
    landings: Counts


@dataclass(frozen=True)
class Predicted:
    """Seconds [T]: ``wall`` is the sum of the other four. ``background``: what admissions cost, and what of their reads is late."""

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
    """Seconds until ``experts`` [...] asked for together have arrived, from single reads.

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
        UserError: no such service; more misses than the host was calibrated for.
    """
    if miss_service not in MISS_SERVICES:
        raise UserError(f"miss_service '{miss_service}': no such service; {suggest(miss_service, MISS_SERVICES)}")
    tokens, layers = requests.fetches.shape
    compute, policy = np.full(tokens, layers * host.compute_s), np.full(tokens, layers * host.policy_s)
    landings = requests.landings.sum(axis=1)
    landed = host.landing_layer_s * (requests.landings > 0).sum(axis=1) + host.landing_s * landings
    # What lands at a token was read while the token before it was computed.
    work = landings * host.background_s if host.fetch_s else service_time(landings, host)
    window = layers * (host.compute_s + host.policy_s) + landed
    late = np.where(work > 0, np.maximum(work - window, 0.0), 0.0)
    if miss_service == "host_compute":
        waiting = requests.fetches.sum(axis=1) * host.expert_bytes / host.host_compute_bytes_per_s
    elif host.fetch_s:
        table = np.array([0.0, *host.fetch_s])
        if requests.fetches.max(initial=0) >= len(table):
            raise UserError(f"host.timing.fetch_s: calibrated up to {len(table) - 1} misses of a layer; calibrate the host with this model")
        waiting = table[requests.fetches].sum(axis=1)
    else:
        following = np.append(work[1:], 0.0)
        busy = np.divide(following, window, out=np.ones_like(following), where=window > 0) * (following > 0)
        waiting = service_time(requests.fetches, host, np.minimum(busy, 1.0)[:, None]).sum(axis=1)
    return Predicted(compute, policy, waiting, landed + late)
