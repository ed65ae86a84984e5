"""Runs one document under the reference and every arm, all rows in one batch: the emulator's forward pass with a hook of its own.

Row 0 is the reference, decided by the core; its decision log of a layer gives the residency schedule that the other rows of the same layer
read, so that one pass is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from expertmiss._core import VERDICTS
from expertmiss.emulate.emulator import Emulator
from expertmiss.emulate.rows import Row
from expertmiss.errors import UserError
from expertmiss.experiments.b.arms import Arm, Classes, Executed, Flags, execute, route, schedule

METERS = ("calls", "missed", "substituted", "mass", "heaviest")


@dataclass
class Outcome:
    """One document under the reference (row 0) and the arms.

    Attributes:
        nll: [R, T - 1], nats.
        meters: by name of ``METERS``, [R, L] sums over tokens: calls, misses, substituted calls, substituted mass, largest substituted weight
            of a token.
        sites: of every ``site`` arm, by its place among the arms: the call's gate weight, how far its substitute's logit lies below its own, and
            whether it was a miss.
        misses: the reference's misses of rank >= 1: int64 ``layer``, ``rank`` and float64 ``weight``.
        executed: what every arm executed, [arm][layer], where it was asked for.
        resident: the schedule by layer, where it was asked for.
    """

    nll: NDArray[np.float64]
    meters: dict[str, NDArray[np.float64]]
    misses: dict[str, NDArray[Any]]
    sites: dict[int, tuple[float, float, bool]] = field(default_factory=dict)
    executed: list[list[Executed]] = field(default_factory=list)
    resident: list[Flags] = field(default_factory=list)


class ArmRunner:
    """A model, the reference policy and the weight classes of the arms.

    Args:
        model: a causal language model with a router adapter.
        reference: the lossless policy; no admission, one pool a layer.
        counts: int64 [L, E] requests in the calibration split.

    Raises:
        UserError: the policy does not fetch every miss or cannot be run.
    """

    def __init__(self, model: Any, reference: Row, counts: NDArray[np.int64]) -> None:
        if reference.policy["miss_rule"]["name"] != "fetch_all":
            raise UserError(f"policy '{reference.name}': Experiment B's reference fetches every miss; use fetch_all")
        self.emulator = Emulator(model, [reference], counts, threads=1, log=True)
        self.meta = self.emulator.meta
        self.stepper = self.emulator.steppers[0]
        order = self.stepper.initial_order.astype(np.int64)
        self.initial = [order[order[:, 0] == layer, 1] for layer in range(self.emulator.geometry.layers)]

    def run(
        self, tokens: NDArray[np.int64], document: int, arms: Sequence[Arm], classes: Sequence[Classes], *, keep: bool = False
    ) -> Outcome:
        """NLL and meters of ``tokens`` [T] under the reference and ``arms``; ``keep`` returns what was executed, too.

        Raises:
            UserError: tokens that are no document of this model, a router that answers what is not a number.
        """
        self.emulator.start(tokens, document)
        rows = 1 + len(arms)
        batch = torch.from_numpy(tokens)[None].expand(rows, -1)
        shape = (rows, self.emulator.geometry.layers)
        outcome = Outcome(np.zeros(0), {name: np.zeros(shape) for name in METERS}, {})
        outcome.executed = [[] for _ in arms] if keep else []
        device = self.emulator.model.get_input_embeddings().weight.device
        misses: list[dict[str, NDArray[Any]]] = []
        with torch.inference_mode(), self._hooked(document, arms, classes, outcome, misses, keep):
            hidden = self.emulator.model.model(input_ids=batch.to(device), use_cache=False).last_hidden_state
        outcome.nll = self.emulator.nll_of(hidden, tokens, False)[0]
        outcome.misses = {name: np.concatenate([part[name] for part in misses]) for name in misses[0]}
        return outcome

    @contextmanager
    def _hooked(
        self,
        document: int,
        arms: Sequence[Arm],
        classes: Sequence[Classes],
        outcome: Outcome,
        misses: list[dict[str, NDArray[Any]]],
        keep: bool,
    ) -> Iterator[None]:
        def hook(layer: int, router: Any) -> Any:
            def replace(module: torch.nn.Module, inputs: Any, output: Any) -> Any:
                logits = router.logits(output)
                kind = torch.float64 if logits.dtype == torch.float64 else torch.float32
                z = logits.detach().to("cpu", kind).numpy().reshape(1 + len(arms), -1, router.experts)
                try:
                    ids, weights = self._layer(z, layer, document, arms, classes, outcome, misses, keep)
                except ValueError as problem:
                    raise UserError(f"document {document}, layer {router.layer}: {problem}") from None
                flat = (torch.from_numpy(part).reshape(-1, router.top_k).to(logits.device) for part in (weights, ids))
                return router.answer(output, *flat)

            return replace

        handles = [router.module.register_forward_hook(hook(layer, router)) for layer, router in enumerate(self.emulator.routers)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _layer(
        self, z: NDArray[Any], layer: int, document: int, arms: Sequence[Arm], classes: Sequence[Classes], outcome: Outcome,
        misses: list[dict[str, NDArray[Any]]], keep: bool,
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:  # fmt: skip
        """Ids and weights [R, T, K] of one layer."""
        tokens, top_k = z.shape[1], self.emulator.geometry.top_k
        ids, weights = np.zeros((len(z), tokens, top_k), np.int64), np.zeros((len(z), tokens, top_k))
        ids[0], weights[0], _ = self.stepper.steps(layer, z[0])
        calls: Mapping[str, Any] = self.stepper.take_log()["calls"]
        resident = schedule(self.initial[layer], calls, tokens, z.shape[2])
        missed = calls["verdict"] != VERDICTS.index("hit")
        later = missed & (calls["rank"] >= 1)
        misses.append({
            "layer": np.full(later.sum(), layer), "rank": calls["rank"][later].astype(np.int64), "weight": calls["weight"][later],
        })  # fmt: skip
        outcome.meters["calls"][:, layer] = tokens * top_k
        outcome.meters["missed"][0, layer] = missed.sum()
        if keep:
            outcome.resident.append(resident)
        for row, arm in enumerate(arms, 1):
            routed = route(z[row], layer, self.meta)
            made = execute(routed, resident, arm, classes[layer], document, layer, self.meta)
            ids[row], weights[row] = made.ids, made.weights
            if arm.site is not None and arm.site[1] == layer:
                token, _, rank = arm.site
                gap = float(routed.z[token, rank]) - float(z[row][token, made.ids[token, rank]])
                outcome.sites[row - 1] = (float(routed.w[token, rank]), gap, bool(made.missed[token, rank]))
            mass = np.where(made.substituted, routed.w, 0.0)
            outcome.meters["missed"][row, layer] = made.missed.sum()
            outcome.meters["substituted"][row, layer] = made.substituted.sum()
            outcome.meters["mass"][row, layer] = mass.sum()
            outcome.meters["heaviest"][row, layer] = mass.max(axis=1).sum()
            if keep:
                outcome.executed[row - 1].append(made)
        return ids, weights
