"""Teacher-forced perplexity on the engine, document by document."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from expertmiss.engine.run import read_text
from expertmiss.engine.session import Engine
from expertmiss.errors import UserError
from expertmiss.evaluation import FIRST_TARGET
from expertmiss.progress import Progress


def perplexity(engine: Engine, texts: Sequence[Path], window: int, documents: int) -> float:
    """Print and return the perplexity over at most ``documents`` documents of ``window`` tokens cut from ``texts``.

    Raises:
        UserError: the texts hold less than one document.
    """
    pieces: list[list[int]] = []
    for path in texts:
        ids = engine.tokenize(read_text(path))
        pieces += [ids[begin : begin + window] for begin in range(0, len(ids) - window + 1, window)]
    pieces = pieces[:documents]
    if not pieces:
        raise UserError(f"the texts hold no document of {window} tokens; give more text or a smaller --window")
    losses, totals = [], np.zeros(3)
    begin = time.perf_counter()
    with Progress(len(pieces), "perplexity", "doc") as bar:
        for document, piece in enumerate(pieces):
            engine.reset(document)
            losses.append(engine.nll(piece)[FIRST_TARGET:])
            if not engine.stock:
                meters = engine.meters()
                totals += [meters[name].sum() for name in ("calls", "hits", "substituted")]
            bar.update()
    seconds = time.perf_counter() - begin
    mean = float(np.concatenate(losses).mean())
    tokens = sum(len(piece) - 1 for piece in pieces)
    click.echo(
        f"perplexity {np.exp(mean):.4f} (NLL {mean:.5f} nats, {len(pieces)} documents of {window} tokens, first {FIRST_TARGET} targets left out)"
    )
    speed = f"{tokens / seconds:.1f} tokens/s"
    if engine.stock:
        click.echo(f"{speed}, stock llama.cpp")
    else:
        click.echo(f"{speed}, {totals[1] / totals[0]:.1%} hits, {totals[2] / totals[0]:.1%} substituted")
    return float(np.exp(mean))
