"""What a figure is, and how the files of this folder are found.

How to add one: write a file here that defines ``FIGURE`` (copy ``gate_weight.py``), name the tables it draws from in ``needs``, and add a
section of the report that shows it. ``make_figures`` draws every figure whose tables it is given.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import matplotlib.figure
import pandas as pd

Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Figure:
    """A figure and its words.

    Attributes:
        name: file name without suffix.
        title: a few words, for headings.
        order: place among the figures.
        needs: names of the statistics tables it draws from.
        caption: what is shown, in full sentences.
        alt: text for readers who do not see the figure, with its main numbers.
        draw: the drawing.
    """

    name: str
    title: str
    order: int
    needs: tuple[str, ...]
    caption: Callable[[Tables], str]
    alt: Callable[[Tables], str]
    draw: Callable[[Tables], matplotlib.figure.Figure]


def figures() -> list[Figure]:
    """Every ``FIGURE`` of this folder, in order."""
    package = importlib.import_module("expertmiss.figures")
    modules = [importlib.import_module(f"expertmiss.figures.{item.name}") for item in pkgutil.iter_modules(package.__path__)]
    return sorted((module.FIGURE for module in modules if hasattr(module, "FIGURE")), key=lambda figure: (figure.order, figure.name))
