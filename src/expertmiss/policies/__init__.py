"""Policies for people: validation with readable errors, and the simulator on recorded traces. The rules themselves are C++ (src/core)."""

from expertmiss.policies.freshness import check_core_fresh
from expertmiss.policies.simulate import calibration_counts, draws, initial_digest, request_counts, simulate
from expertmiss.policies.validate import validate

__all__ = ["calibration_counts", "check_core_fresh", "draws", "initial_digest", "request_counts", "simulate", "validate"]
