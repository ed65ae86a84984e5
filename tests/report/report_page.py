"""Reading a page for tests: elements, ids, links, text."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input"}


class PageReader(HTMLParser):
    """Collects what tests look at and refuses unbalanced elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.headings: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.references: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a":
            self.links.append(found["href"])
        if tag in ("h1", "h2", "h3", "h4"):
            self.headings.append(tag)
        if tag == "svg":
            self.images.append(found)
        for name in ("src", "href", "xlink:href", "data", "action", "srcset"):
            if name in found and tag != "a":
                self.references.append(found[name])

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        if not {"style", "svg"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        """The words a person reads."""
        return " ".join(" ".join(self.words).replace("\u00a0", " ").split())
