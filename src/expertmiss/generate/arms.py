"""Generation under policies: all problems x arms are rows of one batch with one K/V cache, each with its own policy state.

A prompt is run once, losslessly, and changes no state; every generated token that is fed back is one decode step. Each problem starts
from the policy's initial state, whatever was generated before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expertmiss.emulate.attribute import SUBSTITUTE
from expertmiss.emulate.decide import decided
from expertmiss.emulate.emulator import Emulator
from expertmiss.emulate.rows import Row
from expertmiss.errors import UserError
from expertmiss.generate.decode import Ended, Pick, continued, most_probable


@dataclass(frozen=True)
class Continuation:
    """What one arm made of one prompt.

    Attributes:
        tokens: the continuation, the token that ended it included.
        meters: every meter of the core as [L], over the ``len(tokens) - 1`` decode steps (the last token is not fed back).
        log: the core's decision log, if it is kept.
    """

    tokens: list[int]
    meters: dict[str, NDArray[Any]]
    log: Any = None

    def masses(self, layers: int) -> list[float]:
        """Substituted gate mass of every decode step, mean over ``layers``; needs the log. A re-routed call stands in no row of it, see
        :mod:`expertmiss.emulate.attribute`."""
        calls = self.log["calls"]
        kept = calls["verdict"] == SUBSTITUTE
        total = np.bincount(calls["t"][kept], weights=calls["weight"][kept], minlength=len(self.tokens) - 1)
        return [float(value) for value in total / layers]


def refuse_lasting(arms: Sequence[Row]) -> None:
    """Every problem starts from the same state.

    Raises:
        UserError: a policy whose state outlives a document.
    """
    for arm in arms:
        if arm.policy.get("state", "reset") != "reset":
            raise UserError(f"policy {arm.name}: state '{arm.policy['state']}' outlives a problem; generation needs state 'reset'")


class ArmDecoder:
    """A model and the arms that every prompt is continued under.

    Args:
        model: a causal language model with a router adapter, in evaluation mode.
        arms: the policies, the lossless reference among them: it shares batch and kernels with the others.
        most: largest number of prompts in one batch; ``most * len(arms)`` rows.
        counts: int64 [L, E] requests in the calibration split, for warm starts.
        threads: threads that walk the core.
        log: keep decision logs.
        check: assert the invariants of the definitions at every step.

    Raises:
        UserError: no adapter, no MoE layer, a policy that the definitions refuse or whose state outlives a problem.
    """

    def __init__(
        self, model: Any, arms: Sequence[Row], most: int, counts: NDArray[np.int64] | None = None, *, threads: int = 2, log: bool = False, check: bool = False
    ) -> None:  # fmt: skip
        refuse_lasting(arms)
        self.arms, self.most, self.log = list(arms), most, log
        self.emulator = Emulator(model, self.arms * most, counts, threads=threads, log=log, check=check)

    def run(
        self, prompts: Sequence[Sequence[int]], documents: Sequence[int], *, cap: int, eos: int | None, ended: Ended, pick: Pick = most_probable
    ) -> list[list[Continuation]]:  # fmt: skip
        """Continuations by prompt, then by arm.

        Args:
            prompts: token ids, none empty; at most ``most`` of them.
            documents: a number for each prompt, part of every random draw; the same for all arms.
            cap, eos, ended, pick: as in :func:`expertmiss.generate.decode.continued`; ``ended`` and ``pick`` are given the prompt's index, so
                that arms cannot be told apart by them.
        """
        count, emulator = len(self.arms), self.emulator
        if len(prompts) > self.most or len(documents) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts with {len(documents)} documents; at most {self.most}, a document each")
        steppers = emulator.steppers[: len(prompts) * count]
        for row, stepper in enumerate(steppers):
            stepper.reset(documents[row // count])
        made = continued(
            emulator.model, prompts, cap=cap, eos=eos, ended=lambda row, ids: ended(row // count, ids), copies=count,
            pick=lambda logits, rows, step: pick(logits, [row // count for row in rows], step),
            around=lambda rows: decided(emulator.routers, [steppers[row] for row in rows], emulator.pool),
        )  # fmt: skip
        found = [
            Continuation(tokens, dict(stepper.meters()), stepper.take_log() if self.log else None)
            for tokens, stepper in zip(made, steppers, strict=True)
        ]
        return [found[begin : begin + count] for begin in range(0, len(found), count)]
