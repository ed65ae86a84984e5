"""Which sandbox this machine offers; none is used before it has held against every probe."""

from __future__ import annotations

from expertmiss.sandbox import commands
from expertmiss.sandbox.probes import probe
from expertmiss.sandbox.run import Limits, Sandbox
from expertmiss.sandbox.unshare import unshare


def find_sandbox(limits: Limits | None = None, allow_weak: bool = False) -> tuple[Sandbox | None, str]:
    """The first sandbox that works here and holds, and a sentence on it or, if there is none, on why.

    Args:
        limits: what a program may use.
        allow_weak: fall back to limits alone, which leave network and files open.
    """
    limits = limits or Limits()
    reasons = []
    for kind, build in (("bubblewrap", commands.bubblewrap), ("unshare", unshare)):
        command = build(limits)
        if command is None:
            reasons.append(f"{kind} is not installed")
            continue
        sandbox = Sandbox(kind, tuple(command), limits)
        broken = probe(sandbox)
        if not broken:
            return sandbox, f"{kind}, self-test passed"
        reasons.append(f"{kind} does not hold: {broken}")
    command = commands.weak(limits) if allow_weak else None
    if command is None:
        return None, "; ".join(reasons)
    return Sandbox("weak", tuple(command), limits), f"weak: limits of time and memory only ({'; '.join(reasons)})"
