"""What a training run owns between steps: low-precision weights, float32 masters, optimizer, checkpoint."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Executor
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
    operations instead of some hundred short ones. ``options.workers`` threads each update a slice of the matrices.
    """

    def __init__(self, model: FastModel, options: TrainOptions, dtype: torch.dtype) -> None:
        self.clip = options.clip
        self.masters: list[Tensor] = []
        self.low: list[Tensor] = []
        self.grads: list[Tensor] = []
        self.adams: list[torch.optim.AdamW] = []
        parameters = list(model.parameters())
        for matrices in (True, False):
            group = [p for p in parameters if (p.dim() > 1) == matrices]
            flat = torch.cat([p.detach().reshape(-1) for p in group]).float()
            low, grad = flat.to(dtype), torch.zeros(len(flat), dtype=dtype)
            start = 0
            for p in group:
                view = slice(start, start + p.numel())
                p.data, p.grad = low[view].view(p.shape), grad[view].view(p.shape)
                start += p.numel()
            slices = options.workers if matrices else 1
            for master in flat.chunk(slices):
                master.grad = torch.zeros_like(master)
                decay = options.weight_decay if matrices else 0.0
                betas = (options.beta1, options.beta2)
                self.adams.append(torch.optim.AdamW([master], lr=options.learning_rate, betas=betas, weight_decay=decay, fused=True))
                self.masters.append(master)
            self.low += low.chunk(slices)
            self.grads += grad.chunk(slices)

    def step(self, rate: float, workers: Executor) -> float:
        """One clipped update at learning rate ``rate`` from the gradients left in the model; returns the gradient's norm.

        Raises:
            UserError: the gradient is not finite.
        """
        norms = workers.map(lambda grad: torch.linalg.vector_norm(grad, dtype=torch.float32), self.grads)
        norm = float(torch.linalg.vector_norm(torch.stack(list(norms))))
        if norm != norm or norm == float("inf"):
            raise UserError("train-builtin: the gradient is not finite; lower train_builtin.learning_rate and start again")
        scale = min(1.0, self.clip / (norm + 1e-6))
        list(workers.map(lambda part: self._update(part, rate, scale), range(len(self.masters))))
        return norm

    def _update(self, part: int, rate: float, scale: float) -> None:
        master, low, grad, adam = self.masters[part], self.low[part], self.grads[part], self.adams[part]
        torch.mul(grad, scale, out=master.grad)
        grad.zero_()
        adam.param_groups[0]["lr"] = rate
        adam.step()
        low.copy_(master.detach())

    def state(self) -> dict[str, Any]:
        """Masters and moments, for :meth:`load`."""
        return {"masters": self.masters, "adams": [adam.state_dict() for adam in self.adams]}

    def load(self, state: dict[str, Any]) -> None:
        """Restore exactly what :meth:`state` held."""
        for master, low, saved in zip(self.masters, self.low, state["masters"], strict=True):
            master.copy_(saved)
            low.copy_(master)
        for adam, saved in zip(self.adams, state["adams"], strict=True):
            adam.load_state_dict(saved)


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
