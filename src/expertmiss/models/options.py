"""Options of ``expertmiss train-builtin``: the model's shape and the recipe that trains it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from expertmiss.errors import UserError, suggest

DEFAULT_WEIGHTS = {"code": 0.28, "prose": 0.12, "word_problems": 0.25, "functions": 0.20, "records": 0.10}


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a Qwen3-MoE model; the defaults are those of the model that ships (60 MB in bfloat16)."""

    vocab_size: int = 4096  # entries of the tokenizer
    hidden_size: int = 192  # width of the residual stream
    layers: int = 6  # decoder layers, each with a MoE block
    heads: int = 6  # query heads
    kv_heads: int = 2  # key and value heads; divides heads
    head_dim: int = 32  # width of a head
    experts: int = 256  # E, experts per layer
    experts_per_token: int = 8  # K, experts a token is routed to
    expert_size: int = 32  # inner width of an expert (moe_intermediate_size)
    max_positions: int = 2048  # longest sequence the configuration declares
    rope_theta: float = 10_000.0  # base of the rotary embedding
    norm_eps: float = 1e-6  # epsilon of every RMSNorm

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise UserError(f"train_builtin.shape.kv_heads = {self.kv_heads} does not divide heads = {self.heads}; choose a divisor")
        if not 1 <= self.experts_per_token <= self.experts:
            raise UserError(f"train_builtin.shape.experts_per_token = {self.experts_per_token} is outside 1 .. experts = {self.experts}")


@dataclass(frozen=True)
class TrainOptions:
    """The training recipe: a warm-up, a stable trunk, and a linear decay branched off the trunk (WSD schedule)."""

    shape: ModelShape = field(default_factory=ModelShape)  # sizes of the model
    aligned_share: float = 0.5  # share of training windows that begin where a document begins
    seed: int = 0  # seeds the initial weights and, with the step's number, every batch
    batch: int = 8  # sequences per step
    sequence: int = 512  # tokens per sequence
    workers: int = 2  # shares of the batch that are computed at the same time, one thread each (1 or 2)
    learning_rate: float = 2e-3  # AdamW's rate on the stable trunk
    warmup_steps: int = 200  # steps of linear warm-up
    decay_share: float = 0.2  # share of all steps that the decay branch takes
    weight_decay: float = 0.05  # AdamW's decay of matrices; norm weights have none
    beta1: float = 0.9  # AdamW's first moment
    beta2: float = 0.95  # AdamW's second moment
    clip: float = 1.0  # largest norm of the gradient
    capacity_factor: float = 4.0  # tokens per expert beyond this multiple of the mean are dropped, in training only
    balance: float = 1e-3  # coefficient of the load-balancing loss over a worker's share of the batch, summed over layers
    z_loss: float = 0.0  # coefficient of the router z-loss, summed over layers
    router_smoothness: float = 0.0  # coefficient of the change of router probabilities between neighbouring tokens, summed over layers
    checkpoint_minutes: float = 5.0  # minutes between two checkpoints
    evaluate_every: int = 250  # steps between two evaluations on held-out tokens
    evaluate_sequences: int = 16  # held-out sequences per domain in those evaluations
    weights: dict[str, float] = field(default_factory=lambda: dict(DEFAULT_WEIGHTS))  # sampling weight per domain
    rest_weight: float = 0.05  # sampling weight shared equally by the domains that ``weights`` does not name

    def __post_init__(self) -> None:
        if not 0 < self.decay_share < 1:
            raise UserError(f"train_builtin.decay_share = {self.decay_share} is outside 0 .. 1")
        if self.workers not in (1, 2) or self.batch % self.workers:
            raise UserError(f"train_builtin.workers = {self.workers}: must be 1 or 2 and divide batch = {self.batch}")
        if self.capacity_factor < 1:
            raise UserError(f"train_builtin.capacity_factor = {self.capacity_factor} is below 1: experts could not hold the tokens")
        if self.sequence > self.shape.max_positions:
            raise UserError(f"train_builtin.sequence = {self.sequence} is longer than shape.max_positions = {self.shape.max_positions}")


def options_from(cfg: Mapping[str, Any]) -> TrainOptions:
    """Typed options from a plain mapping (nested under ``shape`` for the sizes).

    Raises:
        UserError: an option is unknown or out of range.
    """
    values = dict(cfg)
    shape = dict(values.pop("shape", {}))
    for given, kind, prefix in ((shape, ModelShape, "train_builtin.shape."), (values, TrainOptions, "train_builtin.")):
        known = {entry.name for entry in dataclasses.fields(kind)}
        for name in given:
            if name not in known:
                raise UserError(f"{prefix}{name}: no such option; {suggest(name, known)}")
    return TrainOptions(shape=ModelShape(**shape), **values)
