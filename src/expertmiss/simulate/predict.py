"""``expertmiss predict``: the time a token takes under a policy on a host, from a trace and the host's profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from expertmiss import policies
from expertmiss.simulate.explain import prepare
from expertmiss.simulate.time_model import HostTimes, predict, requests_of


def predict_one(
    path: Path, policy: dict[str, Any], residency: float, calibration: Path | None, host: dict[str, Any], miss_service: str
) -> str:
    """Predicted time of a token and its parts, as text.

    Raises:
        UserError: as for a simulation; a host without times; no such service.
    """
    times = HostTimes.of(host)
    trace, counts, capacity = prepare(path, policy, residency, calibration)
    meters = policies.simulate(trace, policy, capacity, counts=counts, log=True, kl=False)
    found = [predict(one, times, miss_service) for one in requests_of(meters["log"], trace.meta.layers).values()]
    names = ("wall", "compute", "waiting", "policy", "background")
    seconds = {name: np.concatenate([getattr(one, name) for one in found]) for name in names}
    wall = seconds["wall"].mean()
    standing = "ASSUMED, nobody measured it" if host.get("assumed") else "measured by calibrate_host"
    lines = [
        f"{policy['name']} over {path.name}, C = {capacity} of {trace.meta.experts}, {len(found)} documents",
        f"host {host['name']} ({standing}), miss_service {miss_service}; predicted, open loop",
        f"  {'time per token':<16}{1e3 * wall:10.3f} ms  (median {1e3 * np.median(seconds['wall']):.3f}, 99th percentile {1e3 * np.quantile(seconds['wall'], 0.99):.3f})",
    ]
    lines += [f"  {name:<16}{1e3 * seconds[name].mean():10.3f} ms  {seconds[name].mean() / wall:6.1%}" for name in names[1:]]
    return "\n".join(lines)
