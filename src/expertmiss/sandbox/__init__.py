"""Running Python that a model wrote, where it can reach nothing: see docs/sandbox.md for what that covers."""

from expertmiss.sandbox.find import find_sandbox
from expertmiss.sandbox.run import Limits, Outcome, Sandbox

__all__ = ["Limits", "Outcome", "Sandbox", "find_sandbox"]
