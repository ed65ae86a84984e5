"""Generation under policies on the engine: one problem and arm after another, with experts that are really read.

The same interface and meaning as :class:`expertmiss.generate.arms.ArmDecoder`, whose arms share a batch; times are not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from expertmiss.emulate.rows import Row
from expertmiss.engine.session import Engine
from expertmiss.generate.arms import Continuation, refuse_lasting
from expertmiss.generate.decode import Ended, Pick, most_probable


class EngineDecoder:
    """A loaded engine and the arms that every prompt is continued under.

    Args:
        engine: with a context that holds the longest prompt and its continuation.
        arms: the policies.
        counts: int64 [L, E] requests in the calibration split, for warm starts.
        log: keep decision logs.

    Raises:
        UserError: a policy whose state outlives a problem.
    """

    def __init__(self, engine: Engine, arms: Sequence[Row], counts: NDArray[np.int64] | None = None, *, log: bool = False) -> None:
        refuse_lasting(arms)
        self.engine, self.arms, self.counts, self.log = engine, list(arms), counts, log

    def run(
        self, prompts: Sequence[Sequence[int]], documents: Sequence[int], *, cap: int, eos: int | None, ended: Ended, pick: Pick = most_probable
    ) -> list[list[Continuation]]:  # fmt: skip
        """Continuations by prompt, then by arm; the arguments are those of :meth:`expertmiss.generate.arms.ArmDecoder.run`.

        Raises:
            UserError: a policy that the engine refuses, text that does not fit its context.
        """
        found: list[list[Continuation]] = [[] for _ in prompts]
        for arm in self.arms:  # a start allocates the slots; a reset only reads what is not resident any more
            self.engine.start(arm.policy, arm.capacity, self.counts, arm.seed, log=self.log)
            for row, (prompt, document) in enumerate(zip(prompts, documents, strict=True)):
                self.engine.reset(document)
                logits, made = self.engine.prefill(prompt), list[int]()
                while True:
                    made.append(int(pick(torch.from_numpy(logits)[None], [row], len(made))[0]))
                    if made[-1] == eos or len(made) >= cap or ended(row, made):
                        break
                    logits = self.engine.step(made[-1])
                found[row].append(Continuation(made, self.engine.meters(), self.engine.take_log() if self.log else None))
        return found
