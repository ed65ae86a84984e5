"""``expertmiss watch``: the last line of every stage's progress journal."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click


def follow(results: Path, experiment: str | None, once: bool, interval: float = 2.0) -> None:
    """Print one line a running stage, every ``interval`` seconds until interrupted; with ``once``, one time.

    A stage counts as running while its journal is younger than a minute and its last line is not the end.
    """
    while True:
        lines = [text for journal in sorted(results.glob("**/*.jsonl")) if (text := _status(journal, results, experiment)) is not None]
        click.echo("\n".join(lines) if lines else "no stage is running")
        if once:
            return
        time.sleep(interval)


def _status(journal: Path, results: Path, experiment: str | None) -> str | None:
    name = journal.relative_to(results).with_suffix("")
    if experiment is not None and experiment not in name.parts:
        return None
    if time.time() - journal.stat().st_mtime > 60:
        return None
    written = journal.read_text(encoding="utf-8").splitlines()
    try:
        last = json.loads(written[-1])
        done, total, rate = last["done"], last["total"], last["rate"]
        what = f"{name}: {last['what']} {done}/{total} {last['unit']}"
    except (IndexError, KeyError, TypeError, json.JSONDecodeError):
        return None  # a journal of another kind, or a line that is still being written
    if total is None or done >= total:
        return None
    return f"{what}, {rate:.3g}/s, {(total - done) / rate:.0f} s left" if rate else what
