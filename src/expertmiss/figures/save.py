"""Save a figure as PDF, SVG and PNG, with its labels in the files and beside them, the same bytes every time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.figure

from expertmiss.figures.base import Figure, Tables
from expertmiss.figures.style import RC, sign
from expertmiss.files import atomic_path, sha256_file, write_json
from expertmiss.provenance import Labels
from expertmiss.stats.tables import label_line

FORMATS = ("pdf", "svg", "png")
CREATOR = "expertmiss"


def save_figure(figure: Figure, tables: Tables, labels: Labels, sources: Mapping[str, str], out: Path) -> list[Path]:
    """Draw ``figure`` into ``out/{pdf,svg,png}/`` and describe it in ``out/<name>.json``; returns the paths.

    Dates are left out and SVG ids are salted with the figure's name, so that equal tables give equal bytes.
    """
    line = label_line(labels)
    written = []
    settings: Any = {**RC, "svg.hashsalt": figure.name}
    with mpl.rc_context(settings):
        drawing = figure.draw(tables)
        sign(drawing, line)
        for kind in FORMATS:
            path = out / kind / f"{figure.name}.{kind}"
            with atomic_path(path) as temporary:
                drawing.savefig(temporary, format=kind, metadata=_metadata(kind, figure.title, line))
            written.append(path)
    description = {
        "figure": figure.name, "title": figure.title, "order": figure.order, "caption": figure.caption(tables), "alt": figure.alt(tables),
        "labels": asdict(labels), "label_line": line, "sources": dict(sources),
        "files": {path.relative_to(out).as_posix(): sha256_file(path) for path in written},
    }  # fmt: skip
    write_json(out / f"{figure.name}.json", description)
    return [*written, out / f"{figure.name}.json"]


def plain_line(line: str) -> str:
    """The label line in ASCII: what every format's metadata can hold and a reader can search for."""
    return line.replace(" · ", "; ").encode("ascii", "replace").decode()


def _metadata(kind: str, title: str, line: str) -> dict[str, Any]:
    labels = plain_line(line)
    if kind == "pdf":
        return {"Title": title, "Subject": labels, "Creator": CREATOR, "Producer": CREATOR, "CreationDate": None}
    if kind == "svg":
        return {"Title": title, "Description": labels, "Creator": CREATOR, "Date": None}
    return {"Title": title, "Description": labels, "Software": CREATOR}
