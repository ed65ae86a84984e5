"""What the figures of the generation test share: one panel a task, and how tasks are called."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.axes
import matplotlib.figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from expertmiss.figures.style import WIDTH

FOOT = 0.55  # inches for the labels: tasks, decoding, sandbox and lock take up to six lines

TITLES = {"word_problems": "synthetic word problems", "functions": "synthetic functions", "gsm8k": "GSM8K", "humaneval": "HumanEval"}


def task_panels(tasks: Sequence[str], height: float) -> tuple[matplotlib.figure.Figure, list[matplotlib.axes.Axes]]:
    """A one-column figure with a panel of ``height`` inches for each task, one below the other; the strip below them is kept for the labels."""
    whole = height * len(tasks) + FOOT
    figure = matplotlib.figure.Figure(
        figsize=(WIDTH, whole), layout=ConstrainedLayoutEngine(rect=(0.0, FOOT / whole, 1.0, 1 - FOOT / whole))
    )
    axes = list(figure.subplots(len(tasks), 1, squeeze=False)[:, 0])
    for task, panel in zip(tasks, axes, strict=True):
        panel.set_title(TITLES.get(task, task))
    return figure, axes
