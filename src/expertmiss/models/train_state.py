"""What a training run owns between steps: low-precision weights, float32 masters, optimizer, checkpoint."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from expertmiss.errors import UserError
from expertmiss.files import atomic_path
from expertmiss.models.fast_model import FastModel
from expertmiss.models.options import TrainOptions

# Options that may differ between the run that wrote a checkpoint and the one that continues it.
FREE_OPTIONS = {"checkpoint_minutes", "evaluate_every", "evaluate_sequences", "decay_share"}


class MasterWeights:
    """AdamW on float32 masters of a model computed in ``dtype``.

    All matrices share one flat tensor and all norm weights another (not decayed): an optimizer step is then a handful of long vector
    operations instead of some hundred short ones.
    """

    def __init__(self, model: FastModel, options: TrainOptions, dtype: torch.dtype) -> None:
        self.clip = options.clip
        self.masters: list[Tensor] = []
        self.low: list[Tensor] = []
        self.grads: list[Tensor] = []
        parameters = list(model.parameters())
        for group in ([p for p in parameters if p.dim() > 1], [p for p in parameters if p.dim() == 1]):
            master = torch.cat([p.detach().reshape(-1) for p in group]).float()
            low, grad = master.to(dtype), torch.zeros(len(master), dtype=dtype)
            start = 0
            for p in group:
                view = slice(start, start + p.numel())
                p.data, p.grad = low[view].view(p.shape), grad[view].view(p.shape)
                start += p.numel()
            master.grad = torch.zeros_like(master)
            self.masters.append(master)
            self.low.append(low)
            self.grads.append(grad)
        groups = [
            {"params": [self.masters[0]], "weight_decay": options.weight_decay},
            {"params": [self.masters[1]], "weight_decay": 0.0},
        ]
        self.adam = torch.optim.AdamW(groups, lr=options.learning_rate, betas=(options.beta1, options.beta2), fused=True)

    def step(self, rate: float) -> float:
        """One clipped update at learning rate ``rate`` from the gradients left in the model; returns the gradient's norm."""
        for master, grad in zip(self.masters, self.grads, strict=True):
            assert master.grad is not None
            master.grad.copy_(grad)
            grad.zero_()
        norm = float(torch.nn.utils.clip_grad_norm_(self.masters, self.clip))
        if norm != norm or norm == float("inf"):
            raise UserError("train-builtin: the gradient is not finite; lower train_builtin.learning_rate and start again")
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.step()
        for master, low in zip(self.masters, self.low, strict=True):
            low.copy_(master)
        return norm

    def state(self) -> dict[str, Any]:
        """Masters and moments, for :meth:`load`."""
        return {"masters": self.masters, "adam": self.adam.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        """Restore exactly what :meth:`state` held."""
        for master, low, saved in zip(self.masters, self.low, state["masters"], strict=True):
            master.copy_(saved)
            low.copy_(master)
        self.adam.load_state_dict(state["adam"])


@dataclass
class Position:
    """How far a run is: ``step`` steps done; a decay branch left the trunk after ``branch`` steps and lasts ``decay_steps``."""

    step: int = 0
    seconds: float = 0.0  # wall time spent in steps so far, the trunk's share included
    branch: int | None = None
    decay_steps: int | None = None

    def rate(self, options: TrainOptions) -> float:
        """Learning rate of the next step: warm-up, stable, linear decay to zero (Hu et al. 2024, MiniCPM, section 4: WSD)."""
        rate = options.learning_rate * min(1.0, (self.step + 1) / max(options.warmup_steps, 1))
        if self.branch is not None and self.decay_steps is not None:
            rate *= max(0.0, 1.0 - (self.step - self.branch) / self.decay_steps)
        return rate


def save_checkpoint(path: Path, weights: MasterWeights, position: Position, options: TrainOptions, data: str) -> None:
    """Write everything a run needs to continue, and the digest of the token files it read; complete or absent."""
    content = {"weights": weights.state(), "position": dataclasses.asdict(position), "options": dataclasses.asdict(options), "data": data}
    with atomic_path(path) as temporary:
        torch.save(content, temporary)


def load_checkpoint(path: Path, weights: MasterWeights, options: TrainOptions, data: str) -> Position:
    """Restore ``weights`` and return the position.

    Raises:
        UserError: not a checkpoint, or written under other options or from other token files (``data`` is their digest).
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        saved, read = content["options"], content["data"]
    except Exception as problem:
        raise UserError(f"{path}: not a training checkpoint ({type(problem).__name__}); delete it to start again") from problem
    for name, value in dataclasses.asdict(options).items():
        if name not in FREE_OPTIONS and saved.get(name) != value:
            raise UserError(f"{path}: was trained with {name} = {saved.get(name)}, not {value}; use another run folder or the same value")
    if read != data:
        raise UserError(f"{path}: was trained on other token files; use another run folder, or the files it began with")
    weights.load(content["weights"])
    return Position(**content["position"])
