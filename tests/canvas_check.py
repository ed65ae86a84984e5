"""Whether a figure stays on its canvas."""

from __future__ import annotations

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg

from expertmiss.figures.style import RC, sign


def check_inside(item, tables):
    """Text of the figure lies inside the page, and its axes stay above the strip of labels."""
    with mpl.rc_context(RC):
        figure = item.draw(tables)
        axes = figure.axes[-1]
        sign(figure, " · ".join(["a label of some length"] * 9))
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw_without_rendering()
        drawn = figure.get_tightbbox(renderer)
        width, height = figure.get_size_inches()
        assert drawn.x0 >= 0 and drawn.y0 >= 0 and drawn.x1 <= width and drawn.y1 <= height, item.name
        foot = figure.texts[-1].get_window_extent(renderer).y1
        assert axes.xaxis.get_tightbbox(renderer).y0 >= foot, item.name
