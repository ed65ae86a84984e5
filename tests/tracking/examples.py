"""Small results folders, written the way stages write them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from expertmiss.provenance import Labels, write_run

LABELS = Labels("builtin_trained", "own", "none", "none", "exploratory", {"documents": 40, "tokens": 20480}, ("quick run",))


def write_example(root: Path, slot: str = "default/simulate_policies/builtin/prose", tau: float = 0.15, share: float = 0.06) -> Path:
    """A run in ``root/results/<slot>`` with one table, one figure in ``reports/`` and a nested configuration; returns its run.json."""
    experiment, stage, *place = slot.split("/")
    folder = root / "results" / slot
    figure = root / "reports" / experiment / "figures" / ("_".join([stage, *place]) + ".svg")
    for path, text in ((folder / "cells.csv", f"tau,share\n{tau},{share}\n"), (figure, f"<svg><!-- {tau} --></svg>")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    write_run(
        folder, stage=stage, experiment=experiment, name=f"{stage.replace('_', ' ')}: {' on '.join(place)}",
        config={"simulate": {"tau": tau, "capacities": [16, 32], "beta": float("inf")}}, source_hash="0" * 64, inputs=(),
        outputs=[folder / "cells.csv"], artifacts=[folder / "cells.csv", figure], metrics={"misses/share": share}, timings={"simulate": 1.5},
        labels=LABELS, started=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )  # fmt: skip
    return folder / "run.json"
