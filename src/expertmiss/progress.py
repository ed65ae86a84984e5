"""Progress of long stages: a bar for the person at the terminal, JSON lines for everyone else."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from tqdm import tqdm


class Progress:
    """A bar with rate and time left, mirrored to a JSONL file that ``expertmiss watch`` reads.

    Args:
        total: amount of work, in ``unit``s.
        description: what is being done, in a few words.
        unit: name of the unit (``tok``, ``cell``, ``doc``).
        journal: JSONL file that receives one line every ``interval`` seconds; ``None`` for no file.
        interval: seconds between two lines or two redraws.
    """

    def __init__(self, total: int, description: str, unit: str, journal: Path | str | None = None, interval: float = 2.0) -> None:
        self.description, self.unit, self.interval = description, unit, interval
        self.journal = Path(journal) if journal is not None else None
        self.started = self.written = time.monotonic()
        # Snakemake redirects stderr to a log: a bar redrawn there once a second would be thousands of lines.
        redraw = 0.5 if sys.stderr.isatty() else 10.0
        self.bar = tqdm(total=total, desc=description, unit=unit, mininterval=redraw, unit_scale=total >= 10_000, dynamic_ncols=True)

    def update(self, amount: int = 1, **notes: Any) -> None:
        """Advance by ``amount``; ``notes`` (e.g. ``loss=2.31``) stand beside the bar and in the journal."""
        if notes:
            self.bar.set_postfix(notes, refresh=False)
        self.bar.update(amount)
        if time.monotonic() - self.written >= self.interval or self.bar.n >= (self.bar.total or 0):
            self._journal(notes)

    def _journal(self, notes: dict[str, Any]) -> None:
        self.written = time.monotonic()
        if self.journal is None:
            return
        elapsed = self.written - self.started
        line = {
            "time": time.time(), "what": self.description, "unit": self.unit, "done": self.bar.n, "total": self.bar.total,
            "rate": self.bar.n / elapsed if elapsed > 0 else None, **notes,
        }  # fmt: skip
        self.journal.parent.mkdir(parents=True, exist_ok=True)
        with open(self.journal, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.bar.close()
