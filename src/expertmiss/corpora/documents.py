"""Text of a wheel by domain: source code, prose, markup and translations, cleaned and cut into documents.

A Python module goes to ``code`` as it is, or, if its docstrings are long and its name's checksum is even, to ``prose`` as its
docstrings alone: never to both, so that no text stands in two domains. Licence files, licence headers, bundled copies of other
packages, generated or minified files and files that are not UTF-8 are left out.
"""

from __future__ import annotations

import ast
import email
import re
import textwrap
import warnings
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

TEXT_DOMAINS = ("code", "prose", "markup", "translations")
# Byte-level tokens make one character of another script up to four tokens, so other scripts would dominate the domain.
LATIN_LANGUAGES = frozenset(
    [
        "ca",
        "cs",
        "da",
        "de",
        "es",
        "et",
        "fi",
        "fr",
        "hr",
        "hu",
        "id",
        "it",
        "nb",
        "nl",
        "nn",
        "no",
        "pl",
        "pt",
        "pt_BR",
        "pt_PT",
        "ro",
        "sk",
        "sl",
        "sv",
        "tr",
        "vi",
    ]
)
_MARKUP = frozenset({".html", ".htm", ".xml", ".json", ".yaml", ".yml", ".css", ".toml", ".jinja2", ".jinja", ".xsd", ".zcml", ".pt"})
_PROSE = frozenset({".rst", ".md", ".txt"})
_BUNDLED = re.compile(r"(^|[/_])(vendor|vendored|_?vendor_?|third_?party|extern|externals|bundled|node_modules|blib2to3|packages)(/|$)")
_LICENCE = re.compile(r"licen[cs]e|copying|notice|authors|requirements|entry_points|top_level|record$|sbom|contributors", re.I)
_SKIP_NAMES = re.compile(r"_pb2|\.min\.|(^|/)(parsetab|lextab|parser_tables)|migrations/\d|package-lock|\.dist-info/(?!METADATA)")
_MSGSTR = re.compile(r'^msgstr(?:\[\d\])?\s+((?:"(?:[^"\\]|\\.)*"\s*)+)', re.M)
_SPECIAL = "<|endoftext|>"
MIN_DOCSTRINGS = 2600  # characters of docstrings that make a module a candidate for prose


def wheel_texts(wheel: Path) -> Iterator[tuple[str, str, str]]:
    """Yield ``(domain, member name, text)`` for the usable members of one wheel, in the order of their names."""
    with zipfile.ZipFile(wheel) as archive:
        for info in sorted(archive.infolist(), key=lambda info: info.filename):
            name = info.filename
            if info.is_dir() or not 200 <= info.file_size <= 600_000 or _BUNDLED.search(name) or _SKIP_NAMES.search(name):
                continue
            suffix = PurePosixPath(name).suffix.lower()
            if suffix not in _MARKUP | _PROSE | {".py", ".po"} and not name.endswith("METADATA"):
                continue
            try:
                raw = archive.read(info).decode("utf-8")
            except UnicodeDecodeError:
                continue
            for domain, text in _classified(name, suffix, raw):
                text = clean(text)
                if usable(domain, text):
                    yield domain, name, text


def _classified(name: str, suffix: str, raw: str) -> Iterator[tuple[str, str]]:
    if name.endswith(".dist-info/METADATA"):
        yield "prose", str(email.message_from_string(raw).get_payload())
    elif suffix == ".py":
        candidate = len(raw) >= MIN_DOCSTRINGS and zlib.crc32(name.encode()) % 2 == 0
        text = docstrings(raw) if candidate else ""
        if len(text) >= MIN_DOCSTRINGS:
            yield "prose", text
        else:
            yield "code", _without_header(raw)
    elif suffix in _PROSE and not _LICENCE.search(name):
        yield "prose", raw
    elif suffix == ".po":
        if LATIN_LANGUAGES.intersection(PurePosixPath(name).parts) or PurePosixPath(name).stem in LATIN_LANGUAGES:
            yield "translations", messages(raw)
    elif suffix in _MARKUP and not _LICENCE.search(name):
        yield "markup", raw


def docstrings(source: str) -> str:
    """All docstrings of a module, dedented, in source order, separated by blank lines; empty if it does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ""
    found = [ast.get_docstring(node) for node in _definitions(tree)]
    return "\n\n".join(text for text in found if text and len(text) >= 60)


def _definitions(node: ast.AST) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """The module, classes and functions in source order; expressions, which hold none, are not entered."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node
    for part in ("body", "handlers", "orelse", "finalbody", "cases"):
        children = getattr(node, part, [])
        for child in children if isinstance(children, list) else []:
            yield from _definitions(child)


def messages(catalogue: str) -> str:
    """Translated messages of a gettext catalogue, one per line; messages without a blank (labels) are left out."""
    lines = []
    for match in _MSGSTR.finditer(catalogue):
        text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', match.group(1)))
        text = text.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\").strip()
        if text.count(" ") >= 2 and not text.startswith(("Project-Id-Version", "Report-Msgid")):
            lines.append(text)
    return "\n".join(dict.fromkeys(lines))


def _without_header(source: str) -> str:
    """Source without its leading comment block (shebang, coding line, licence)."""
    lines = source.splitlines()
    start = next((i for i, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
    return "\n".join(lines[start:])


def clean(text: str) -> str:
    """Unix line ends, no trailing blanks or tabs, at most one blank line in a row."""
    text = "\n".join(line.rstrip() for line in text.expandtabs(4).splitlines())
    return re.sub(r"\n{3,}", "\n\n", textwrap.dedent(text)).strip("\n")


def usable(domain: str, text: str) -> bool:
    """False for data dumps and minified or mostly non-ASCII text, and for text that holds the end-of-text marker."""
    if len(text) < 200 or "\0" in text or _SPECIAL in text:
        return False
    lines = text.splitlines()
    digits = sum(map(text.count, "0123456789")) / len(text)
    foreign = 1 - len(text.encode("ascii", "ignore")) / len(text)
    long_lines = max(map(len, lines)) > (4000 if domain in ("prose", "translations") else 400)
    return digits < 0.2 and foreign < (0.25 if domain == "translations" else 0.1) and not long_lines


def pieces(texts: Iterable[str], characters: int) -> Iterator[str]:
    """Join texts by blank lines and cut at line ends into pieces of at least ``characters`` (at most one line more).

    What remains at the end and is shorter is dropped.
    """
    lines: list[str] = []
    length = 0
    for text in texts:
        for line in [*text.split("\n"), ""]:
            if not lines and not line:
                continue
            lines.append(line)
            length += len(line) + 1
            if length >= characters:
                yield "\n".join(lines).strip("\n") + "\n"
                lines, length = [], 0


def grouped(texts: Iterable[str], characters: int) -> Iterator[tuple[int, int, list[str]]]:
    """Join consecutive texts until they fill a document: ``(first, last, documents)``, texts counted from 1.

    A group is one source: a long text gives several documents of the same one. What remains at the end and is shorter is dropped.
    """
    group: list[str] = []
    for number, text in enumerate(texts, 1):
        group.append(clean(text))
        found = list(pieces(group, characters))
        if found:
            yield number - len(group) + 1, number, found
            group = []


def by_domain(wheel: Path) -> dict[str, list[str]]:
    """``{domain: texts}`` of a wheel, members in an order fixed by the checksum of their names."""
    texts: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    for domain, name, text in wheel_texts(wheel):
        texts[domain].append((zlib.crc32(name.encode()), name, text))
    return {domain: [text for _, _, text in sorted(members)] for domain, members in texts.items()}
