"""Figures inside the page: Matplotlib's SVG made fit for HTML, light and dark."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from expertmiss.figures.style import FOOT, GRID, INK, MUTED, PAPER

# The page's style sheet gives these variables their light and dark values.
_VARIABLES = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--grid)", PAPER: "var(--paper)"}


def inline_svg(svg: str, name: str, alt: str) -> Markup:
    """The ``<svg>`` element of a figure's file for embedding.

    Prolog, metadata, style (it would reach the whole page) and the line at the foot go (the caption carries the labels, the download
    keeps them), the size follows the page, ids get the figure's name so that several figures can share a page, and ink, grid and
    paper follow the colour scheme.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<(metadata|style|title)\b.*?</\1>", "", body, flags=re.DOTALL)
    head, rest = body.split(">", 1)
    head = re.sub(r' (width|height|version)="[^"]*"', "", head)
    width, height = (float(number) for number in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', head)[0])
    head = re.sub(r'viewBox="[^"]*"', f'viewBox="0 0 {width:g} {height - 72 * FOOT:g}"', head)
    head = f'{head} role="img" aria-label="{escape(alt)}"'
    rest = re.sub(r'\bid="', f'id="{name}-', rest)
    rest = re.sub(r'((?:xlink:)?href="#|url\(#)', rf"\g<1>{name}-", rest)
    for colour, variable in _VARIABLES.items():
        rest = re.sub(rf"{colour}\b", variable, rest, flags=re.IGNORECASE)
    return Markup(f"{head}>{rest}")
