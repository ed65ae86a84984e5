"""Where every number comes from: runs, hashes, versions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from markupsafe import Markup

from expertmiss.report.base import Page, Section, render


def _row(run: Mapping[str, Any]) -> dict[str, Any]:
    seconds = ""
    if "started" in run and "finished" in run:
        seconds = f"{(datetime.fromisoformat(run['finished']) - datetime.fromisoformat(run['started'])).total_seconds():.0f} s"
    return {
        "stage": run["stage"], "split": run.get("config", {}).get("split", ""), "key": run.get("run_key", "")[:12], "source": run.get("source_hash", "")[:12], "seconds": seconds,
        "finished": run.get("finished", "")[:16].replace("T", " "), "inputs": run.get("inputs", {}), "outputs": run.get("outputs", {}),
    }  # fmt: skip


def _render(page: Page) -> Markup:
    # A report re-run later may mix machines; the last stage's is shown.
    environment: Mapping[str, Any] = next((run["environment"] for run in reversed(page.runs) if "environment" in run), {})
    return render("provenance.html.j2", rows=[_row(run) for run in page.runs], environment=environment)


SECTION = Section("provenance", "Provenance", 90, (), _render)
