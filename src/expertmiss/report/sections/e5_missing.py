"""Where E5 would stand, when the engine was not there to measure it."""

from __future__ import annotations

from markupsafe import Markup

from expertmiss.report.base import Page, Section


def _render(page: Page) -> Markup:
    reason = page.cfg.get("not_measured", {}).get("e5")
    if reason is None:
        return Markup("")
    return Markup("<p>Not measured: {}. Every other result of this page is complete; then the same command adds this one.</p>").format(
        reason
    )


SECTION = Section("e5_missing", "E5: speed and perplexity on the engine", 48, ("claims",), _render)
