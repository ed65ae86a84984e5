"""``expertmiss engine``: build it, convert a model, chat, measure perplexity and speed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

FILE = click.argument("model", type=click.Path(path_type=Path), metavar="MODEL.gguf")
OVERRIDES = click.argument("overrides", nargs=-1)


def _shared(command: Any) -> Any:
    """The options of every command that decodes."""
    for option in (
        click.option("--resident", default=0.25, show_default=True, help="Resident share of each layer's experts."),
        click.option("--stock", is_flag=True, help="Stock llama.cpp with everything resident, for comparison."),
        click.option("--store", type=click.Choice(["direct", "mapped"]), default="direct", show_default=True, help="Slow tier: the disk, or memory."),
        click.option("--device", default="cpu", show_default=True, help="Fast tier: cpu, CUDA0 ..., rpc:HOST:PORT."),
        click.option("--context", default=4096, type=click.IntRange(min=2), show_default=True, help="Tokens that fit."),
        click.option("--threads", default=2, type=click.IntRange(min=1), show_default=True, help="Threads of the model."),
        click.option("--io-threads", default=8, type=click.IntRange(min=1), show_default=True, help="Reads under way at once."),
        click.option("--landing", type=click.Choice(["scheduled", "timed"]), default="scheduled", show_default=True, help="Admissions land when due, or once read."),
        click.option("--calibration", type=click.Path(path_type=Path), default=None, help="Trace whose request counts warm the cache; cold without."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.group()
def engine() -> None:
    """Decode with a cache of experts inside stock llama.cpp; `make setup-engine` first."""


@engine.command()
@click.option(
    "--backend",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Of llama-cpp-python; cuda is checked to be there.",
)
def build(backend: str) -> None:
    """Compile the engine against the installed llama-cpp-python, which `make setup-engine BACKEND=...` builds."""
    from expertmiss.engine.build import build as compile_engine

    click.echo(compile_engine(backend))


@engine.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="GGUF file to write.")
@click.option("--type", "kind", default="F32", show_default=True, help="Type of the matrices: F32, F16, BF16, Q8_0 or Q4_0.")
def convert(folder: Path, out: Path, kind: str) -> None:
    """Write the Qwen3-MoE model in FOLDER, such as models/builtin, as a GGUF file."""
    from expertmiss.engine.convert import convert as write

    click.echo(write(folder, out, kind))


@engine.command()
@FILE
@OVERRIDES
@_shared
@click.option("--tokens", default=256, type=click.IntRange(min=1), show_default=True, help="Longest answer.")
@click.option("--temperature", default=0.0, type=click.FloatRange(min=0), show_default=True, help="0: always the likeliest token.")
@click.option("--seed", default=0, show_default=True, help="Of the draws.")
@click.option("--raw", is_flag=True, help="Continue the text as it is, without the model's chat format.")
def chat(model: Path, overrides: tuple[str, ...], tokens: int, temperature: float, seed: int, raw: bool, **options: Any) -> None:
    """Talk to MODEL.gguf, e.g. `expertmiss engine chat MODEL.gguf policy=quality_first --resident 0.25`; end with Ctrl-D."""
    from expertmiss.engine.chat import talk
    from expertmiss.engine.generate import Sampling
    from expertmiss.engine.run import opened

    talk(opened(model, overrides, **options), Sampling(temperature, seed=seed), tokens, raw)


@engine.command()
@FILE
@OVERRIDES
@_shared
@click.option(
    "--text", "texts", type=click.Path(path_type=Path), multiple=True, required=True, help="UTF-8 text; may be given several times."
)
@click.option("--window", default=512, type=click.IntRange(min=18), show_default=True, help="Tokens of a document.")
@click.option("--documents", default=16, type=click.IntRange(min=1), show_default=True, help="At most this many documents.")
def ppl(model: Path, overrides: tuple[str, ...], texts: tuple[Path, ...], window: int, documents: int, **options: Any) -> None:
    """Perplexity of MODEL.gguf under a policy, token by token, each document from the policy's initial state."""
    from expertmiss.engine.perplexity import perplexity
    from expertmiss.engine.run import opened

    options["context"] = window
    perplexity(opened(model, overrides, **options), texts, window, documents)


@engine.command()
@FILE
@OVERRIDES
@_shared
@click.option("--text", "texts", type=click.Path(path_type=Path), multiple=True, help="UTF-8 text to decode; random tokens without.")
@click.option("--block", default=16, type=click.IntRange(min=1), show_default=True, help="Tokens timed at once.")
@click.option("--rounds", default=20, type=click.IntRange(min=3), show_default=True, help="Pairs of blocks.")
def bench(model: Path, overrides: tuple[str, ...], texts: tuple[Path, ...], block: int, rounds: int, **options: Any) -> None:
    """Time MODEL.gguf under a policy against stock llama.cpp, block by block."""
    from expertmiss.engine.run import bench as measure

    measure(model, overrides, texts, block, rounds, options)
