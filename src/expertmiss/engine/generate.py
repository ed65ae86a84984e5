"""Text from a model, token by token, and what it cost."""

from __future__ import annotations

import codecs
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expertmiss.engine.session import Engine


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn: the likeliest (temperature 0), or from the ``top_k`` likeliest."""

    temperature: float = 0.0
    top_k: int = 40
    seed: int = 0


def draw(logits: NDArray[np.float32], sampling: Sampling, random: np.random.Generator) -> int:
    """One token id from ``logits`` [V]."""
    if sampling.temperature <= 0:
        return int(logits.argmax())
    best = np.argsort(-logits)[: sampling.top_k]
    shares = np.exp((logits[best] - logits[best[0]]).astype(np.float64) / sampling.temperature)
    return int(random.choice(best, p=shares / shares.sum()))


def generate(engine: Engine, prompt: Sequence[int], limit: int, sampling: Sampling, random: np.random.Generator) -> Iterator[str]:
    """Pieces of text after ``prompt``, until the model ends it, ``limit`` tokens are out or the context is full."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    logits = engine.prefill(prompt)
    for _ in range(min(limit, engine.room)):
        token = draw(logits, sampling, random)
        if engine.ends_text(token):
            break
        yield decode(engine.piece(token))
        logits = engine.step(token)
    yield decode(b"", True)


@dataclass
class Meter:
    """Speed and misses between two moments of an engine."""

    engine: Engine
    begin: float = field(default_factory=time.perf_counter)
    before: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.before = self._now()

    def _now(self) -> dict[str, Any]:
        if self.engine.stock:
            return {}
        meters = self.engine.meters()
        return {name: int(meters[name].sum()) for name in ("tokens", "calls", "hits", "fetches", "substituted")} | self.engine.traffic()

    def line(self, tokens: int) -> str:
        """Tokens a second and, of an engine's steps, hits, substitutes, waiting and bytes."""
        seconds = time.perf_counter() - self.begin
        speed = f"{tokens / seconds:.1f} tokens/s"
        if self.engine.stock:
            return f"{speed}, stock llama.cpp"
        now = self._now()
        gone = {name: now[name] - self.before[name] for name in now}
        calls = max(gone["calls"], 1)
        return (
            f"{speed}, {gone['hits'] / calls:.1%} hits, {gone['substituted'] / calls:.1%} substituted, "
            f"{gone['waiting'] / seconds:.0%} of the time waiting for reads, {gone['loaded_bytes'] / 1e6 / max(tokens, 1):.2f} MB a token"
        )
