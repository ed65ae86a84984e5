"""Per-token NLL of a model under policies, teacher-forced: whole sequences at once, or token by token.

Both forms share the decision hook. :meth:`Emulator.whole` is the fast one; :meth:`Emulator.stepped` runs one token after another with a K/V
cache, as generation does, and is the only one for pools that layers share (scope ``global``).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from expertmiss._core import Stepper
from expertmiss.emulate.decide import Decisions, decided
from expertmiss.emulate.rows import Row
from expertmiss.errors import UserError
from expertmiss.models.routers import RouterRecorder
from expertmiss.policies import validate

LOSS_ROWS = 512  # positions, over all rows of the batch, whose logits exist at once


@dataclass
class Emulated:
    """What one document's forward passes gave.

    Attributes:
        nll: float64 [R, T - 1], nats; entry ``t`` is the target at position ``t + 1``.
        meters: every meter of the core as [R, L].
        decisions: executed experts and router logits where they were asked for.
        logits: output logits [R, T, V] where they were asked for.
    """

    nll: NDArray[np.float64]
    meters: dict[str, NDArray[Any]]
    decisions: Decisions | None = None
    logits: Tensor | None = field(default=None, repr=False)


class Emulator:
    """A model and the policies it is run under; every document is run once per row, all rows in one batch.

    Args:
        model: a causal language model with a router adapter, in evaluation mode.
        rows: the policies; the reference is a row like the others and shares their batch and kernels.
        counts: int64 [L, E] requests in the calibration split, for warm starts.
        threads: threads that walk the core.
        log: keep the core's decision logs (:meth:`take_logs`).
        check: assert the invariants of the definitions at every step.

    Raises:
        UserError: no adapter, no MoE layer, a policy that the definitions refuse or a running model cannot follow.
    """

    def __init__(
        self, model: Any, rows: Sequence[Row], counts: NDArray[np.int64] | None = None, *, threads: int = 2, log: bool = False, check: bool = False,
        mutant: str | None = None,
    ) -> None:  # fmt: skip
        recorder = RouterRecorder(model)
        self.model, self.rows, self.routers, self.geometry = model, list(rows), recorder.routers, recorder.geometry
        self.meta = {
            "layers": self.geometry.layers, "experts": self.geometry.experts, "top_k": self.geometry.top_k, "gating": self.geometry.gating,
            "normalise": self.geometry.normalise, "scale": self.geometry.scale, "bias": self.geometry.bias, "groups": self.geometry.groups,
        }  # fmt: skip
        for row in self.rows:
            validate(row.policy, self.meta, row.capacity)
            if counts is None and row.policy.get("initial", "warm") == "warm":
                raise UserError(f"policy '{row.name}': a warm start needs counts of a calibration trace; give them, or set initial to cold")
        try:
            self.steppers = [
                Stepper(self.meta, row.policy, row.capacity, counts, row.seed, log=log, check=check, mutant=mutant) for row in self.rows
            ]
        except ValueError as problem:
            raise UserError(str(problem)) from None
        self.pool = ThreadPoolExecutor(threads)

    def whole(self, tokens: NDArray[np.int64], document: int, *, keep: bool = False, forced: Decisions | None = None) -> Emulated:
        """All tokens of a document in one forward pass per row.

        Args:
            tokens: [T] token ids.
            document: its id, part of every random draw.
            keep: return decisions, router logits and output logits too.
            forced: execute these decisions instead of the core's.

        Raises:
            UserError: a row's pool is shared by layers; tokens that are no document; a router answers what is not a number.
        """
        for row in self.rows:
            if row.policy.get("scope") == "global":
                raise UserError(
                    f"policy {row.name}: a pool shared by layers depends on the order of layers within a token; use the stepped form"
                )
        self.start(tokens, document)
        kept = Decisions() if keep else None
        batch = torch.from_numpy(tokens)[None].expand(len(self.rows), -1)
        with torch.inference_mode(), decided(self.routers, self.steppers, self.pool, kept, forced):
            hidden = self._hidden(batch)
        nll, logits = self.nll_of(hidden, tokens, keep)
        return Emulated(nll, self._meters(), kept, logits)

    def stepped(self, tokens: NDArray[np.int64], document: int, *, keep: bool = False, forced: Decisions | None = None) -> Emulated:
        """As :meth:`whole`, one token after another with a K/V cache."""
        from transformers import DynamicCache

        self.start(tokens, document)
        kept = Decisions() if keep else None
        cache = DynamicCache(config=self.model.config)
        states = []
        with torch.inference_mode(), decided(self.routers, self.steppers, self.pool, kept, forced):
            for token in torch.from_numpy(tokens):
                batch = token.reshape(1, 1).expand(len(self.rows), 1)
                states.append(self._hidden(batch, past_key_values=cache, use_cache=True))
        nll, logits = self.nll_of(torch.cat(states, dim=1), tokens, keep)
        return Emulated(nll, self._meters(), kept, logits)

    def plain(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """NLL [R, T - 1] by the model's own routing, same batch and kernels: what a policy's cost is measured against."""
        with torch.inference_mode():
            hidden = self._hidden(torch.from_numpy(tokens)[None].expand(len(self.rows), -1))
        return self.nll_of(hidden, tokens, False)[0]

    def take_logs(self) -> list[Any]:
        """The core's decision logs since the last call, one a row."""
        return [stepper.take_log() for stepper in self.steppers]

    def start(self, tokens: NDArray[np.int64], document: int) -> None:
        """Check a document and bring every row's state to its start.

        Raises:
            UserError: not [T] of 2 or more ids of the model's vocabulary.
        """
        vocabulary = self.model.get_input_embeddings().num_embeddings
        if tokens.ndim != 1 or len(tokens) < 2:
            raise UserError(f"document {document}: tokens of shape {list(tokens.shape)}; a document is a row of 2 or more token ids")
        if tokens.min() < 0 or tokens.max() >= vocabulary:
            wrong = int(tokens[(tokens < 0) | (tokens >= vocabulary)][0])
            raise UserError(
                f"document {document}: token id {wrong} is not below the vocabulary's {vocabulary}; use the model's own tokenizer"
            )
        longest = getattr(self.model.config, "max_position_embeddings", len(tokens))
        if len(tokens) > longest:
            raise UserError(f"document {document}: {len(tokens)} tokens, the model's context holds {longest}; cut documents shorter")
        for stepper in self.steppers:
            stepper.reset(document)

    def _hidden(self, batch: Tensor, **options: Any) -> Tensor:
        device = self.model.get_input_embeddings().weight.device
        options.setdefault("use_cache", False)
        state: Tensor = self.model.model(input_ids=batch.to(device), **options).last_hidden_state
        return state

    def nll_of(self, hidden: Tensor, tokens: NDArray[np.int64], keep: bool) -> tuple[NDArray[np.float64], Tensor | None]:
        """NLL of final hidden states [R, T, H], in chunks of positions, so that [R, T, V] logits never exist at once unless they are asked for."""
        targets = torch.from_numpy(tokens[1:]).to(hidden.device)
        pieces, kept, chunk = [], [], max(1, LOSS_ROWS // hidden.shape[0])
        with torch.inference_mode():
            for begin in range(0, hidden.shape[1], chunk):
                logits = self._output(hidden[:, begin : begin + chunk]).float()
                if keep:
                    kept.append(logits)
                goal = targets[begin : begin + chunk].expand(len(logits), -1)
                rows = logits[:, : goal.shape[1]].flatten(0, 1)
                losses = torch.nn.functional.cross_entropy(rows, goal.flatten(), reduction="none")
                pieces.append(losses.view(goal.shape).double().cpu().numpy())
        return np.concatenate(pieces, axis=1), torch.cat(kept, dim=1) if keep else None

    def _output(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.model.lm_head(hidden)
        scaling = getattr(self.model.config, "logits_scaling", None)
        return logits if scaling is None else logits / scaling

    def _meters(self) -> dict[str, NDArray[Any]]:
        meters = [stepper.meters() for stepper in self.steppers]
        return {name: np.stack([meter[name] for meter in meters]) for name in meters[0]}
