"""Train the small MoE that ships: ``expertmiss train-builtin``.

Inputs:  token files (``train_data.TokenFiles``) and their ``tokenizer/`` folder.
Outputs: ``<work>/trunk.pt`` and ``<work>/decay.pt`` (checkpoints), ``<work>/{journal,evaluations}.jsonl``, and the model folder.
Steps:   extend the stable trunk · branch a linear decay off it · export what the branch ends with.

The trunk's checkpoint never decays, so a later call extends it and branches again. Any kill leaves the last checkpoint; the batches of a
step depend on (seed, step) alone, so the continued run equals the uninterrupted one up to floating point.
"""

from __future__ import annotations

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from expertmiss.errors import UserError
from expertmiss.memory import keep_freed_memory
from expertmiss.models.fast_model import FastModel
from expertmiss.models.options import TrainOptions, options_from
from expertmiss.models.train_data import TokenFiles
from expertmiss.models.train_state import MasterWeights, Position, load_checkpoint, save_checkpoint
from expertmiss.progress import Progress

EVALUATION_BATCH = 8
FINAL_SEQUENCES = 100


@dataclass(frozen=True)
class Share:
    """What one worker found: ``losses`` per sequence and ``notes`` for the journal."""

    losses: npt.NDArray[np.float32]
    notes: dict[str, float]


class Trainer:
    """One process's view of a training run in the folder ``work``."""

    def __init__(self, options: TrainOptions, data: Path, work: Path, dtype: torch.dtype = torch.bfloat16) -> None:
        self.options, self.work = options, work
        self.data = TokenFiles(
            data, options.weights, options.rest_weight, options.aligned_share, options.shape.vocab_size, options.sequence
        )
        self.model = FastModel(options.shape, options.seed)
        self.weights = MasterWeights(self.model, options, dtype)
        self.workers = ThreadPoolExecutor(options.workers)
        self.position = Position()
        self.stopped = False

    def extend_trunk(self, until: int) -> None:
        """Continue the stable trunk until ``until`` steps are done (or a termination signal), then write its checkpoint."""
        if self._trunk.exists():
            self.position = load_checkpoint(self._trunk, self.weights, self.options, self.data.digest)
        if self.position.step < until:
            self._train(until, self._trunk)

    def decay(self, steps: int) -> None:
        """Run the decay branch of ``steps`` steps off the trunk's checkpoint; a branch under way off the same checkpoint continues."""
        if not self._trunk.exists():
            raise UserError(f"{self._trunk}: no trunk to branch from; run the trunk first")
        trunk = load_checkpoint(self._trunk, self.weights, self.options, self.data.digest)
        self.position = Position(trunk.step, trunk.seconds, branch=trunk.step, decay_steps=steps)
        if self._decay.exists():
            earlier = load_checkpoint(self._decay, self.weights, self.options, self.data.digest)
            if (earlier.branch, earlier.decay_steps) == (trunk.step, steps):
                self.position = earlier
            else:
                load_checkpoint(self._trunk, self.weights, self.options, self.data.digest)
        self._train(trunk.step + steps, self._decay)

    @property
    def _trunk(self) -> Path:
        return self.work / "trunk.pt"

    @property
    def _decay(self) -> Path:
        return self.work / "decay.pt"

    def _train(self, until: int, checkpoint: Path) -> None:
        options, position = self.options, self.position
        tokens = options.batch * options.sequence
        remaining = (until - position.step) * tokens
        what = f"train-builtin {checkpoint.stem} from step {position.step}"
        saved = last = time.monotonic()
        with Progress(remaining, what, "tok", self.work / "journal.jsonl", interval=10.0) as progress, _Signals(self):
            while position.step < until and not self.stopped:
                notes = self._step()
                now = time.monotonic()
                position.seconds += now - last
                progress.update(tokens, **notes)
                if position.step % options.evaluate_every == 0:
                    self._record_evaluation(checkpoint.stem)
                if now - saved >= 60 * options.checkpoint_minutes and position.step < until:
                    save_checkpoint(checkpoint, self.weights, position, options, self.data.digest)
                    saved = now
                last = time.monotonic()
        save_checkpoint(checkpoint, self.weights, position, options, self.data.digest)

    def _step(self) -> dict[str, Any]:
        options, position = self.options, self.position
        batch, domains = self.data.batch(options.seed, position.step, options.batch)
        # One single-threaded worker per share meets the others once a step; threads inside every operation would meet a thousand times,
        # and on a busy machine wait each time for the slower one.
        shares = list(self.workers.map(self._learn, batch.chunk(options.workers)))
        rate = position.rate(options)
        norm = self.weights.step(rate, self.workers)
        position.step += 1
        each = np.concatenate([share.losses for share in shares])
        return {
            "step": position.step,
            "loss": round(float(each.mean()), 4),
            **{f"loss_{self.data.domains[d]}": round(float(each[domains == d].mean()), 4) for d in np.unique(domains)},
            "learning_rate": rate,
            "norm": round(norm, 3),
            **{name: round(float(np.mean([share.notes[name] for share in shares])), 4) for name in shares[0].notes},
        }

    def _learn(self, tokens: Tensor) -> Share:
        """Add a share of the batch [b, T + 1] to the gradients."""
        options = self.options
        loss, each, terms = self.model.loss(tokens, options.capacity_factor)
        total = loss
        layers, calls = options.shape.layers, each.numel() * options.shape.experts_per_token
        peak = max(float(counts.max()) for counts in terms.counts) * options.shape.experts / calls
        notes = {"peak_load": peak, "dropped": terms.dropped / (layers * calls)}
        for name, weight, term in (
            ("balance", options.balance, terms.balance),
            ("z", options.z_loss, terms.z),
            ("change", options.router_smoothness, terms.change),
        ):
            if weight:  # a term without coefficient must not cost its passes over the logits
                value = term()
                total = total + weight * value
                notes[name] = float(value.detach()) / layers
        # The sum of two shares' gradients does not depend on who comes first; of three it would.
        (total * (len(tokens) / options.batch)).backward()  # type: ignore[no-untyped-call]
        return Share(each.mean(1).numpy(), notes)

    def evaluate(self, sequences: int) -> dict[str, float]:
        """Held-out NLL per domain in nats per token, nothing dropped, over up to ``sequences`` sequences of each."""
        return held_out_nll(self.model, self.data, sequences)

    def _record_evaluation(self, branch: str) -> None:
        line = {"time": time.time(), "branch": branch, "step": self.position.step, "nll": self.evaluate(self.options.evaluate_sequences)}
        with open(self.work / "evaluations.jsonl", "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


class _Signals:
    """Within the block a termination signal ends the run after the step under way, checkpoint included."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.trainer.stopped = True

    def __enter__(self) -> None:
        self.before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}

    def __exit__(self, *unused: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


@torch.no_grad()
def held_out_nll(model: FastModel, data: TokenFiles, sequences: int) -> dict[str, float]:
    """Mean NLL per domain in nats per token over up to ``sequences`` held-out sequences of each; nothing is dropped."""
    result = {}
    for domain in data.domains:
        windows = data.held_out_windows(domain, sequences)
        losses = [model.loss(part, None)[1] for part in torch.split(windows, EVALUATION_BATCH)]
        result[domain] = round(float(torch.cat(losses).mean()), 5)
    return result


def decay_steps(trunk_steps: int, share: float) -> int:
    """Steps of a decay branch that makes up ``share`` of all steps."""
    return max(1, round(trunk_steps * share / (1 - share)))


def train(options: TrainOptions, data: Path, work: Path, out: Path | None, trunk_steps: int) -> None:
    """Extend the trunk to ``trunk_steps`` and, unless ``out`` is None, branch a decay and export its model to ``out``.

    Args:
        options: the recipe.
        data: folder of token files with ``tokenizer/``.
        work: folder of checkpoints and journals; a run found there continues.
        out: model folder; None trains the trunk only.
        trunk_steps: steps of the trunk; a trunk already longer is branched where it stands.
    """
    work.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(options, data, work)
    trainer.extend_trunk(trunk_steps)
    if out is None or trainer.stopped:
        return
    trainer.decay(decay_steps(trainer.position.step, options.decay_share))
    if not trainer.stopped:
        from expertmiss.models.export import export_model  # transformers takes seconds to import: only where it is used

        shipped = FastModel(options.shape)
        shipped.load_state_dict(trainer.model.state_dict())  # the values that are stored, evaluated in float32
        held_out = held_out_nll(shipped, trainer.data, FINAL_SEQUENCES)
        export_model(trainer.model, options, trainer.position, held_out, data, out)


@click.command("train-builtin")
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Folder of token files, with tokenizer/.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Folder of checkpoints and journals; continues what it finds.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Model folder; without it only the trunk is trained.")
@click.option("--trunk-steps", type=int, required=True, help="Steps of the stable trunk (the decay branch comes on top).")
@click.option("--cfg", "cfg_text", default="{}", help="Options that differ from their defaults, as JSON.")
def command(data: Path, work: Path, out: Path | None, trunk_steps: int, cfg_text: str) -> None:
    """Train the small model that ships (resumes where it stopped)."""
    try:
        options = options_from(json.loads(cfg_text))
    except json.JSONDecodeError as problem:
        raise UserError(f"--cfg: not JSON ({problem})") from None
    torch.set_num_threads(1)
    keep_freed_memory()
    train(options, data, work, out, trunk_steps)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of ``expertmiss train-builtin``."""
    command.main(args=arguments, prog_name="expertmiss train-builtin", standalone_mode=False)


if __name__ == "__main__":
    main()
