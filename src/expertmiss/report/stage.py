"""Stage render_report: one page a person reads, and its parts for a paper.

Inputs:  run.json of the stages behind the report; tables and figures lie beside them.
Outputs: index.html (self-contained), figures/{pdf,svg,png}, tables/{csv,tex,md}, numbers.tex.
Steps:   collect tables and figures; render the sections whose tables are there; export; check that everything carries labels.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from expertmiss.errors import UserError
from expertmiss.files import atomic_path, read_json, sha256_file, write_text
from expertmiss.provenance import write_run
from expertmiss.report.base import Page, render, sections
from expertmiss.report.check import problems
from expertmiss.report.inline import inline_svg
from expertmiss.report.shown import write_shown
from expertmiss.stages import Context
from expertmiss.stats.tables import Table, joint_labels, label_line, read_table

STAGE = "render_report"


def run(cfg: dict[str, Any], *, runs: list[Path], out: Path, context: Context) -> None:
    """Write the report into ``out``.

    Args:
        cfg: ``report`` (``title``, ``quick``), ``model`` (``name``, ``title``), ``corpus`` (``name``), ``policies`` (by name), ``stats``.
        runs: ``run.json`` of summarize_policies, analyze_traces, make_figures, and of the stages before them (for provenance).

    Raises:
        UserError: no statistics table among the inputs, two of one name, or an artifact without labels.
    """
    started, begun = datetime.now(UTC), time.monotonic()
    needed = {name for section in sections() for name in section.needs}
    paths = _table_paths(runs, needed)
    tables = {name: read_table(path) for name, path in paths.items()}
    if not tables:
        raise UserError(f"render_report: none of the runs wrote a table that a section needs ({', '.join(sorted(needed))})")
    _clear(out)
    figures = _copy_figures(runs, out)
    page = Page(
        cfg=cfg, experiment=context.experiment, tables={name: table.frame for name, table in tables.items()},
        labels=joint_labels(list(tables.values()), quick=cfg["report"]["quick"]), figures=figures, runs=[read_json(path) for path in runs],
    )  # fmt: skip
    chosen = [section for section in sections() if set(section.needs) <= set(tables)]
    bodies = [(section, section.render(page)) for section in chosen]
    sources = {path.name: sha256_file(path) for path in paths.values()}
    _export(page, tables, sources, out)
    line = label_line(page.labels)
    write_text(out / "numbers.tex", page.numbers.latex(line))
    labels_json = json.dumps(asdict(page.labels), sort_keys=True)
    write_text(out / "index.html", render("page.html.j2", page=page, bodies=bodies, label_line=line, labels_json=labels_json))
    if found := problems(out):
        raise UserError(f"{found[0]} ({len(found)} such artifacts); run make_figures and render_report again")
    written = sorted(path for path in out.rglob("*") if path.is_file() and path.name != "run.json" and not path.name.startswith("."))
    write_run(
        out, stage=STAGE, experiment=context.experiment, name=f"report of {context.experiment}", config=cfg, source_hash=context.source_hash,
        inputs=[*paths.values(), *_figure_files(figures, runs)], outputs=written, artifacts=[path for path in written if path.suffix != ".json"],
        metrics={"sections": len(chosen), "figures": len(figures), "tables": len(page.exports)}, timings={"total": time.monotonic() - begun},
        labels=page.labels, started=started,
    )  # fmt: skip


def _table_paths(runs: list[Path], needed: set[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in (table for run_file in runs for table in sorted(run_file.parent.glob("*.parquet"))):
        if path.stem not in needed:
            continue
        if path.stem in found:
            raise UserError(f"{path}: a second table '{path.stem}' beside {found[path.stem]}; a report covers one model, corpus and split")
        found[path.stem] = path
    return found


def _clear(out: Path) -> None:
    """Remove an older report: figures and tables that are no longer made must not stay beside the new page."""
    for name in ("run.json", "index.html", "numbers.tex"):
        (out / name).unlink(missing_ok=True)
    for name in ("figures", "tables"):
        shutil.rmtree(out / name, ignore_errors=True)


def _copy_figures(runs: list[Path], out: Path) -> dict[str, Mapping[str, Any]]:
    """Copy every described figure into ``out/figures``; returns the descriptions in order, with ``svg`` for inlining."""
    found = []
    for description in (item for path in runs for item in sorted(path.parent.glob("*.json")) if item.name != "run.json"):
        content = read_json(description)
        if "figure" not in content:
            continue
        for name in [*content["files"], description.name]:
            with atomic_path(out / "figures" / name) as temporary:
                shutil.copyfile(description.parent / name, temporary)
        svg = (description.parent / "svg" / f"{content['figure']}.svg").read_text(encoding="utf-8")
        found.append({**content, "svg": inline_svg(svg, content["figure"], content["alt"])})
    return {content["figure"]: content for content in sorted(found, key=lambda content: (content["order"], content["figure"]))}


def _figure_files(figures: Mapping[str, Any], runs: list[Path]) -> list[Path]:
    # Not the run.json files themselves: their time stamps would make every report a new one.
    return [path for run_file in runs for path in (run_file.parent / f"{name}.json" for name in figures) if path.exists()]


def _export(page: Page, tables: Mapping[str, Table], sources: Mapping[str, str], out: Path) -> None:
    for table in page.exports:
        write_shown(table, page.labels, sources, out / "tables")
