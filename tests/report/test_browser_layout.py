"""The page in a browser: at a phone's width nothing but tables scrolls sideways."""

from __future__ import annotations

import re
import subprocess

import pytest
from rendered import CFG, CONTEXT, draw
from synthetic_study import write_study
from tests.experiments.tiny_study import make_study, show

from expertmiss.report.stage import run

# Chromium's window is never narrower than 500 pixels, so the page itself is.
PROBE = """<style>html {{ width: {width}px; }}</style><script>
addEventListener("load", () => {{
  const wide = [...document.querySelectorAll("main *, header *, footer *")].filter(
    (node) => !node.closest(".scroll, svg") && node.getBoundingClientRect().right > {width} + 0.5);
  document.body.dataset.wide = wide.map((node) => node.tagName).join(" ") || "none";
  document.body.dataset.scrolls = document.querySelectorAll(".scroll").length;
}});</script></body>"""


def overflowing(page, folder, width):
    """Elements of ``page`` that reach beyond ``width`` pixels (``none``), and how many tables scroll by themselves."""
    text = page.read_text().replace("<details>", "<details open>")
    probe = folder / "probe.html"
    probe.write_text(text.replace("</body>", PROBE.format(width=width)))
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ]
    command = [
        "chromium",
        *options,
        f"--user-data-dir={folder / 'profile'}",
        "--window-size=1200,900",
        "--virtual-time-budget=5000",
        "--dump-dom",
        f"file://{probe}",
    ]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found = dict(re.findall(r'data-(wide|scrolls)="([^"]*)"', shown))
    return found["wide"], int(found["scrolls"])


@pytest.mark.system
@pytest.mark.parametrize("width", [400, 1000])
def test_no_element_is_wider_than_the_page(tmp_path, width):
    runs = draw(write_study(tmp_path / "results", resamples=20), tmp_path / "results" / "figures")
    run(CFG, runs=runs, out=tmp_path / "reports" / "test", context=CONTEXT)
    wide, scrolls = overflowing(tmp_path / "reports" / "test" / "index.html", tmp_path, width)
    assert wide == "none" and scrolls >= 7


@pytest.mark.system
@pytest.mark.parametrize("width", [400, 1000])
def test_the_experiments_fit_too(tmp_path, width):
    (tmp_path / "results").mkdir()
    wide, scrolls = overflowing(show(make_study(tmp_path / "results"), tmp_path) / "index.html", tmp_path, width)
    assert wide == "none" and scrolls >= 12
