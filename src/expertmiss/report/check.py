"""Whether everything in a report's folder carries its labels."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from expertmiss.errors import UserError
from expertmiss.figures.save import plain_line
from expertmiss.files import read_json, sha256_file
from expertmiss.provenance import Labels


def pdf_labels(path: Path) -> str:
    """The label line in a PDF's metadata; empty if there is none."""
    found = re.search(rb"/Subject \((.*?)(?<!\\)\)", path.read_bytes(), re.DOTALL)
    return re.sub(rb"\\([()\\])", rb"\1", found.group(1)).decode("latin-1") if found else ""


def svg_labels(path: Path) -> str:
    """The label line in an SVG's metadata; empty if there is none."""
    found = re.search(r"<dc:description>(.*?)</dc:description>", path.read_text(encoding="utf-8"), re.DOTALL)
    return html.unescape(found.group(1)) if found else ""


def png_labels(path: Path) -> str:
    """The label line in a PNG's text chunks; empty if there is none."""
    with Image.open(path) as image:
        return str(image.info.get("Description", ""))


EMBEDDED: dict[str, Callable[[Path], str]] = {".pdf": pdf_labels, ".svg": svg_labels, ".png": png_labels}


def problems(folder: Path) -> list[str]:
    """One line for every artifact in ``folder`` (figures, tables, page, numbers) that lacks labels or was changed after it got them."""
    found: list[str] = []
    described: set[Path] = set()
    for group in ("figures", "tables"):
        for description in sorted((folder / group).glob("*.json")):
            content = read_json(description)
            try:
                Labels.of(content.get("labels") or {})
            except UserError as problem:
                found.append(f"{description}: {problem}")
            for name, digest in content.get("files", {}).items():
                path = description.parent / name
                described.add(path)
                if not path.exists() or sha256_file(path) != digest:
                    found.append(f"{path}: missing, or not the file that {description.name} describes")
                elif path.suffix in EMBEDDED and EMBEDDED[path.suffix](path) != plain_line(content.get("label_line", "")):
                    found.append(f"{path}: no labels in the file's metadata")
        files = sorted(path for path in (folder / group).glob("*/*") if path.is_file())
        found += [f"{path}: no labels beside it" for path in files if path not in described]
    return found + _page_problems(folder)


def _page_problems(folder: Path) -> list[str]:
    found = []
    page = folder / "index.html"
    meta = re.search(r'<meta name="labels" content="([^"]*)">', page.read_text(encoding="utf-8"))
    try:
        Labels.of(json.loads(html.unescape(meta.group(1))) if meta else {})
    except (UserError, json.JSONDecodeError) as problem:
        found.append(f"{page}: {problem}")
    numbers = folder / "numbers.tex"
    if not numbers.read_text(encoding="utf-8").startswith("% n: "):
        found.append(f"{numbers}: no labels in its first line")
    return found
