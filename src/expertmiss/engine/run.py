"""What the commands share: opening an engine as asked on the command line, its texts, and the comparison with stock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from expertmiss.config.compose import chosen_policy
from expertmiss.engine.generate import Meter
from expertmiss.engine.measure import decoder, interleave, ratio
from expertmiss.engine.session import Engine, EngineOptions
from expertmiss.errors import UserError
from expertmiss.paths import project_root
from expertmiss.simulate.capacity import resident_experts


def opened(
    model: Path, overrides: Sequence[str], *, resident: float, stock: bool, calibration: Path | None, store: str, device: str, context: int,
    threads: int, io_threads: int, landing: str,
) -> Engine:  # fmt: skip
    """A started engine; one line says what runs.

    Raises:
        UserError: as :class:`Engine`; a resident share that leaves fewer experts than a token needs; a bad override.
    """
    policy = chosen_policy(project_root(), overrides)
    options = EngineOptions(store=store, device=device, context=context, threads=threads, io_threads=io_threads)
    engine = Engine(model, options)
    router = engine.router
    shape = f"{model.name}: {engine.architecture}, {router['layers']} layers of {router['experts']} experts, {router['top_k']} a token"
    if stock:
        engine.start_stock()
        click.echo(f"{shape}; stock llama.cpp, everything resident", err=True)
        return engine
    capacity = resident_experts(resident, router["experts"], router["top_k"], "--resident")
    counts = _request_counts(calibration, router) if calibration is not None else None
    if counts is None and policy.get("initial", "warm") == "warm":
        policy["initial"] = "cold"
    engine.start(policy, capacity, counts, landing=landing)
    size = engine.traffic()["slot_bytes"] / 2**20
    click.echo(
        f"{shape}; policy {policy['name']}, {capacity} resident ({size:.0f} MiB), {policy['initial']} start, {landing} landing", err=True
    )
    return engine


def _request_counts(path: Path, router: dict[str, Any]) -> NDArray[np.int64]:
    from expertmiss.policies.simulate import request_counts
    from expertmiss.traces.format import Trace

    trace = Trace.open(path)
    counts = request_counts(trace)
    if counts.shape != (router["layers"], router["experts"]):
        raise UserError(f"{path}: a trace of {counts.shape[0]} layers of {counts.shape[1]} experts; record one of this model")
    return counts


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        UserError: it is missing or not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (UnicodeDecodeError, IsADirectoryError):
        raise UserError(f"{path}: not a file of UTF-8 text") from None


def bench(model: Path, overrides: Sequence[str], texts: Sequence[Path], block: int, rounds: int, options: dict[str, Any]) -> None:
    """Print tokens a second over the same tokens, and paired ratios: the engine, stock with the engine's buffer settings, and stock with its own
    defaults on a processor (weights rearranged)."""
    warm_up = 2
    needed = block * (rounds + warm_up)
    options["context"] = max(options["context"], needed)
    if options.pop("stock"):
        raise UserError("bench compares with stock llama.cpp anyway; leave out --stock")
    engine = opened(model, overrides, stock=False, **options)
    if texts:
        ids = np.array([token for path in texts for token in engine.tokenize(read_text(path))])
        if len(ids) < needed:
            raise UserError(f"{len(ids)} tokens of text, {needed} are needed; give more text or fewer rounds")
    else:
        ids = np.random.default_rng(0).integers(0, engine.vocabulary, needed)
    stocks = {"stock": engine.options, "stock, repacked": replace(engine.options, repack=True)}
    variants = {"engine": decoder(engine, ids, block)}
    for name, settings in stocks.items():
        stock = Engine(model, settings)
        stock.start_stock()
        variants[name] = decoder(stock, ids, block)
    meter = Meter(engine)
    seconds = interleave(variants, rounds, warm_up)
    for name, values in seconds.items():
        click.echo(f"{name:<16} {block / np.median(values):8.1f} tokens/s (median of {rounds} blocks of {block} tokens)")
    for name in stocks:
        click.echo(f"engine's time over that of {name}: {ratio(seconds['engine'], seconds[name])}")
    click.echo(meter.line(needed).partition(", ")[2])
    click.echo("text: " + (", ".join(path.name for path in texts) or "random tokens (a timing, no language)"))
