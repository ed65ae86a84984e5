"""Stage make_figures: every figure whose tables are there.

Inputs:  statistics tables (summary.parquet, gate_weight.parquet, reuse.parquet); the file's name is the table's name.
Outputs: {pdf,svg,png}/<figure>.<kind> and <figure>.json (labels, caption, alternative text, sources).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from expertmiss.errors import UserError
from expertmiss.figures.base import figures
from expertmiss.figures.save import save_figure
from expertmiss.files import sha256_file
from expertmiss.progress import Progress
from expertmiss.provenance import write_run
from expertmiss.stages import Context
from expertmiss.stats.tables import check_unchanged, joint_labels, read_table, written_files

STAGE = "make_figures"


def run(cfg: dict[str, Any], *, tables: list[Path], out: Path, context: Context) -> None:
    """Draw into ``out``; ``cfg``: ``report.quick`` (bool), whether labels say ``quick run``.

    Raises:
        UserError: no figure can be drawn from ``tables``, a table lacks labels, or it is not what the run.json beside it records.
    """
    started, begun = datetime.now(UTC), time.monotonic()
    known = {path.stem: path for path in tables}
    for path in tables:
        if (run_file := path.parent / "run.json").exists():
            check_unchanged(path, written_files(run_file).get(path.name), run_file)
    read = {name: read_table(path) for name, path in known.items()}
    chosen = [figure for figure in figures() if set(figure.needs) <= set(read)]
    if not chosen:
        raise UserError(
            f"make_figures: no figure draws from {', '.join(sorted(read)) or 'nothing'}; "
            "give summary.parquet, gate_weight.parquet or reuse.parquet"
        )
    everything = joint_labels(list(read.values()), quick=cfg["report"]["quick"])
    written: list[Path] = []
    with Progress(len(chosen), "figures", "figure", context.journal) as progress:
        for figure in chosen:
            labels = joint_labels([read[name] for name in figure.needs], quick=cfg["report"]["quick"])
            frames = {name: read[name].frame for name in figure.needs}
            sources = {known[name].name: sha256_file(known[name]) for name in figure.needs}
            written += save_figure(figure, frames, labels, sources, out)
            progress.update()
    write_run(
        out, stage=STAGE, experiment=context.experiment, name=f"figures of {context.experiment}", config=cfg,
        source_hash=context.source_hash, inputs=list(known.values()), outputs=written,
        artifacts=[path for path in written if path.suffix in (".svg", ".pdf", ".png")],
        metrics={"figures": len(chosen)}, timings={"total": time.monotonic() - begun},
        labels=everything, started=started,
    )  # fmt: skip
