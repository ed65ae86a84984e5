"""A conversation on the terminal."""

from __future__ import annotations

import sys

import click
import numpy as np

from expertmiss.engine.generate import Meter, Sampling, generate
from expertmiss.engine.session import Engine
from expertmiss.errors import UserError


def talk(engine: Engine, sampling: Sampling, limit: int, raw: bool) -> None:
    """Answer every line of standard input until it ends; speed and hits after each answer go to standard error.

    Raises:
        UserError: the conversation no longer fits into the context.
    """
    random = np.random.default_rng(sampling.seed)
    turns: list[tuple[str, str]] = []
    seen = ""  # what the model has in its context, as text
    engine.reset(0)
    while True:
        if sys.stdin.isatty():
            click.echo("> ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            return
        if not line.strip():
            continue
        turns.append(("user", line.rstrip("\n")))
        whole = "" if raw else engine.chat_prompt(turns)
        if not whole:  # no chat format: the text goes on
            whole = seen + line.rstrip("\n")
        if not whole.startswith(seen):  # the format rewrites earlier turns
            engine.reset(0)
            seen = ""
        prompt = engine.tokenize(whole[len(seen) :], special=not seen)
        if len(prompt) >= engine.room:
            raise UserError(f"the conversation is longer than the context of {engine.options.context} tokens; give a larger --context")
        meter, answer = None, ""
        tokens = 0
        for piece in generate(engine, prompt, limit, sampling, random):
            meter = meter or Meter(engine)  # the prompt is not counted
            answer += piece
            tokens += 1
            click.echo(piece, nl=False)
        click.echo()
        seen = whole + answer
        turns.append(("assistant", answer))
        if meter is not None:
            click.echo(f"[{meter.line(max(tokens - 1, 1))}]", err=True)
