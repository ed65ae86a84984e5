"""Stage render_report: one page a person reads, and its parts for a paper.

Inputs:  run.json of the stages behind the report; tables and figures lie beside them.
Outputs: index.html (self-contained), figures/{pdf,svg,png}, tables/{csv,tex,md}, numbers.tex.
Steps:   check tables and figures against run.json; render the sections whose tables are there; export; check that everything carries labels.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from expertmiss.errors import UserError
from expertmiss.figures.base import figures as known_figures
from expertmiss.files import atomic_path, read_json, sha256_file, write_text
from expertmiss.provenance import Labels, write_run
from expertmiss.report.base import Page, render, sections
from expertmiss.report.check import problems
from expertmiss.report.hosts import read_added
from expertmiss.report.inline import inline_svg
from expertmiss.report.shown import write_shown
from expertmiss.stages import Context
from expertmiss.stats.tables import QUICK, Table, check_unchanged, joint_labels, label_line, read_table, written_files

STAGE = "render_report"
TABLES = {"summarize_policies": ("summary", "differences"), "analyze_traces": ("gate_weight", "reuse"), "judge_claims": ("claims",)}
CARRIED = "inconclusive: the cache is carried over documents"


def run(cfg: dict[str, Any], *, runs: list[Path], out: Path, context: Context, added: Sequence[Path] = ()) -> None:
    """Write the report into ``out``.

    Args:
        cfg: ``report`` (``title``, ``quick``), ``model`` (``name``, ``title``), ``corpus`` (``name``), ``policies`` (by name), ``stats``.
        runs: ``run.json`` of summarize_policies, analyze_traces, make_figures, and of the stages before them (for provenance).
        added: ``added.json`` of other hosts (:mod:`expertmiss.report.hosts`); their statistics keep their own labels.

    Raises:
        UserError: no statistics table among the inputs, two of one name, a table or figure that is missing or
            not what its run.json records, or an artifact without labels.
    """
    started, begun = datetime.now(UTC), time.monotonic()
    needed = {name for section in sections() for name in section.needs}
    paths = _table_paths(runs, needed)
    digests = {path.name: sha256_file(path) for path in paths.values()}
    tables = {name: read_table(path) for name, path in paths.items()}
    if not tables:
        raise UserError(f"render_report: none of the runs wrote a table that a section needs ({', '.join(sorted(needed))})")
    others = {f"e5_statistics/{host}": table for host, table in map(read_added, added)}
    drawn = _figure_files(runs, digests)
    _clear(out)
    figures = _copy_figures(drawn, out)
    page = Page(
        cfg=cfg, experiment=context.experiment,
        tables={name: _mark_carried(table.frame, cfg["policies"]) for name, table in (tables | others).items()},
        labels=_page_labels(tables, cfg["report"]["quick"]), table_labels={name: table.labels for name, table in (tables | others).items()},
        figures=figures, runs=[read_json(path) for path in runs], added=[name.partition("/")[2] for name in others],
    )  # fmt: skip
    chosen = [section for section in sections() if set(section.needs) <= set(tables)]
    bodies = [(section, body) for section in chosen if (body := section.render(page))]
    _export(page, digests, out)
    line = label_line(page.labels)
    write_text(out / "numbers.tex", page.numbers.latex(line))
    labels_json = json.dumps(asdict(page.labels), sort_keys=True)
    write_text(out / "index.html", render("page.html.j2", page=page, bodies=bodies, label_line=line, labels_json=labels_json))
    if found := problems(out):
        raise UserError(f"{found[0]} ({len(found)} such artifacts); run make_figures and render_report again")
    written = sorted(path for path in out.rglob("*") if path.is_file() and path.name != "run.json" and not path.name.startswith("."))
    write_run(
        out, stage=STAGE, experiment=context.experiment, name=f"report of {context.experiment}", config=cfg, source_hash=context.source_hash,
        inputs=[*paths.values(), *drawn, *added], outputs=written, artifacts=[path for path in written if path.suffix != ".json"],
        metrics={"sections": len(bodies), "figures": len(figures), "tables": len(page.exports)}, timings={"total": time.monotonic() - begun},
        labels=page.labels, started=started,
    )  # fmt: skip


def _page_labels(tables: Mapping[str, Table], quick: bool) -> Labels:
    """The page's labels; its sample names those of the simulator and of every experiment, which differ."""
    joint = joint_labels(list(tables.values()), quick=quick)
    sample = dict(tables["summary"].labels.n) if "summary" in tables else {}
    for study in ("e1", "e2", "e4", "e5"):
        if f"{study}_measures" in tables:
            own = tables[f"{study}_measures"].labels.n
            unit = "streams" if "streams" in own else "documents"
            sample[f"{unit} in {study.upper()}"] = own[unit]
    return replace(joint, n=sample or joint.n)


def _table_paths(runs: list[Path], needed: set[str]) -> dict[str, Path]:
    """The tables that sections need, by name, each verified against the run.json beside it."""
    found: dict[str, Path] = {}
    for run_file in runs:
        written, stage = written_files(run_file), read_json(run_file).get("stage")
        for name in TABLES.get(stage, ()):
            if f"{name}.parquet" not in written:
                raise UserError(f"{run_file}: {stage} recorded no {name}.parquet beside it; delete {run_file.name} and run snakemake again")
        for name, digest in written.items():
            path = run_file.parent / name
            if path.suffix != ".parquet" or path.stem not in needed:
                continue
            check_unchanged(path, digest, run_file)
            if path.stem in found:
                raise UserError(
                    f"{path}: a second table '{path.stem}' beside {found[path.stem]}; a report covers one model, corpus and split"
                )
            found[path.stem] = path
    return found


def _figure_files(runs: list[Path], digests: Mapping[str, str]) -> list[Path]:
    """The figures' descriptions; they and the files that they describe are verified against make_figures' run.json.

    Raises:
        UserError: a figure is missing, was changed, or was drawn from other tables than ``digests`` (SHA-256 by file name).
    """
    found: list[Path] = []
    for run_file in (path for path in runs if read_json(path).get("stage") == "make_figures"):
        written = written_files(run_file)
        tables = {Path(name).stem for name in read_json(run_file).get("inputs", {})}
        for figure in (figure for figure in known_figures() if set(figure.needs) <= tables):
            if f"{figure.name}.json" not in written:
                raise UserError(
                    f"{run_file}: make_figures recorded no {figure.name}.json beside it; delete {run_file.name} and run snakemake again"
                )
        for name, digest in written.items():
            check_unchanged(run_file.parent / name, digest, run_file)
        for path in (run_file.parent / name for name in written if name.endswith(".json")):
            for table, digest in read_json(path).get("sources", {}).items():
                if digests.get(table, digest) != digest:
                    raise UserError(f"{path}: drawn from another {table} than the report's; delete {run_file} and run snakemake again")
            found.append(path)
    return found


def _mark_carried(frame: pd.DataFrame, policies: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """``frame`` with intervals of policies that carry state called inconclusive: resampled documents are then not independent."""
    carried = {name for name, policy in policies.items() if policy.get("state") == "carry"}
    touched = pd.Series(False, index=frame.index)
    for column in {"policy", "reference"} & set(frame.columns):
        touched |= frame[column].isin(carried)
    return frame.assign(reliable=frame["reliable"].mask(touched, CARRIED)) if touched.any() else frame


def _clear(out: Path) -> None:
    """Remove an older report: figures and tables that are no longer made must not stay beside the new page."""
    for name in ("run.json", "index.html", "numbers.tex"):
        (out / name).unlink(missing_ok=True)
    for name in ("figures", "tables"):
        shutil.rmtree(out / name, ignore_errors=True)


def _copy_figures(descriptions: list[Path], out: Path) -> dict[str, Mapping[str, Any]]:
    """Copy every described figure into ``out/figures``; returns the descriptions in order, with ``svg`` for inlining."""
    found = []
    for description in descriptions:
        content = read_json(description)
        for name in [*content["files"], description.name]:
            with atomic_path(out / "figures" / name) as temporary:
                shutil.copyfile(description.parent / name, temporary)
        svg = (description.parent / "svg" / f"{content['figure']}.svg").read_text(encoding="utf-8")
        found.append({**content, "svg": inline_svg(svg, content["figure"], content["alt"])})
    return {content["figure"]: content for content in sorted(found, key=lambda content: (content["order"], content["figure"]))}


def _export(page: Page, sources: Mapping[str, str], out: Path) -> None:
    for table in page.exports:
        labels = page.table_labels[table.source]
        notes = (*labels.notes, *(note for note in page.labels.notes if note == QUICK and note not in labels.notes))
        write_shown(table, replace(labels, notes=notes), sources, out / "tables")
