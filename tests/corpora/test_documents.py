"""What is taken out of a wheel, how it is cleaned, and how it is cut."""

from __future__ import annotations

import zlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from expertmiss.corpora import documents
from expertmiss.corpora.duplicates import SeenBlocks, SeenText, shingles
from tests.corpora.samples import make_wheel, module, sentences


def test_members_are_classified(tmp_path: Path) -> None:
    licence = "# Copyright someone\n# All rights\n"
    wheel = make_wheel(
        tmp_path,
        "demo",
        {
            "demo/core.py": licence + module("core", 20),
            "demo/_vendor/other.py": module("other", 20),
            "demo/vendor/other.py": module("other", 20),
            "demo/data.json": '{"entries": [\n' + ",\n".join(f'  {{"name": "{word}"}}' for word in sentences("json", 8).split()) + "\n]}\n",
            "demo/table.json": "[" + ",\n".join(str(i) for i in range(500)) + "]",
            "demo/min.css": "a{b:c}" * 200,
            "demo/locale/de/LC_MESSAGES/demo.po": 'msgid "a"\nmsgstr "Bitte eine gültige Zahl eingeben"\n' * 10 + 'msgid "b"\nmsgstr ""\n"Noch ein Satz, der "\n"länger ist"\n' + f'msgid "c"\nmsgstr "{" ".join(sentences("po", 5).split())}"\n',
            "demo/locale/zh/LC_MESSAGES/demo.po": 'msgid "a"\nmsgstr "' + "some words here " * 30 + '"\n',
            "demo/guide.rst": sentences("guide", 6),
            "demo/LICENSE.txt": sentences("licence", 6),
            "demo-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: demo\n\n" + sentences("readme", 6),
            "demo-1.0.dist-info/RECORD.txt": sentences("record", 6),
        },
    )  # fmt: skip
    found = {name: (domain, text) for domain, name, text in documents.wheel_texts(wheel)}
    assert {name: domain for name, (domain, _) in found.items()} == {
        "demo/core.py": "code", "demo/data.json": "markup", "demo/locale/de/LC_MESSAGES/demo.po": "translations", "demo/guide.rst": "prose",
        "demo-1.0.dist-info/METADATA": "prose",
    }  # fmt: skip
    assert "Copyright" not in found["demo/core.py"][1]
    assert "Metadata-Version" not in found["demo-1.0.dist-info/METADATA"][1]
    translated = found["demo/locale/de/LC_MESSAGES/demo.po"][1].splitlines()
    assert translated[:2] == ["Bitte eine gültige Zahl eingeben", "Noch ein Satz, der länger ist"]


def test_a_module_is_code_or_prose_never_both(tmp_path: Path) -> None:
    text = f'"""{sentences("docs", 60)}"""\n' + module("body", 5)
    even, odd = (next(f"m{i}.py" for i in range(99) if zlib.crc32(f"m{i}.py".encode()) % 2 == parity) for parity in (0, 1))
    found = {name: (domain, text) for domain, name, text in documents.wheel_texts(make_wheel(tmp_path, "demo", {even: text, odd: text}))}
    assert found[even][0] == "prose" and "def " not in found[even][1]
    assert found[odd][0] == "code" and "def " in found[odd][1]


def test_docstrings_in_source_order() -> None:
    filler = "with enough words to count as a docstring that says something"
    source = f'"""Module {filler}."""\nif True:\n    def f():\n        """Function {filler}."""\nclass C:\n    """Class {filler}."""\n    async def m(self):\n        """Method {filler}."""\n'
    assert [line.split()[0] for line in documents.docstrings(source).split("\n\n")] == ["Module", "Function", "Class", "Method"]
    assert documents.docstrings("def (") == ""


def test_text_with_the_special_token_is_refused() -> None:
    assert documents.usable("code", "x = 1\n" * 50)
    assert not documents.usable("code", "x = '<|endoftext|>'\n" * 50)


@given(st.lists(st.text(alphabet="ab \n", max_size=80), max_size=12), st.integers(5, 60))
def test_pieces_are_long_enough_and_keep_lines_whole(texts: list[str], characters: int) -> None:
    lines = {line for text in texts for line in text.split("\n")}
    for piece in documents.pieces(texts, characters):
        assert set(piece.rstrip("\n").split("\n")) <= lines | {""}
        assert piece.endswith("\n") and not piece.startswith("\n")
    total = sum(len(piece) for piece in documents.pieces(texts, characters))
    assert total <= sum(len(text) + 2 for text in texts)


def test_groups_are_consecutive_and_long_enough() -> None:
    texts = [sentences(str(i), 2) for i in range(20)]
    groups = list(documents.grouped(texts, 500))
    assert [first for first, _, _ in groups] == [1, *(last + 1 for _, last, _ in groups[:-1])]
    assert all(len(text) >= 500 for _, _, found in groups for text in found)


def test_near_duplicates_are_found_whatever_their_alignment() -> None:
    seen = SeenText(0.3)
    original, other = sentences("a", 60), sentences("b", 60)
    assert seen.admit(original)
    assert not seen.admit("New first line.\n" + original[200:])
    assert not seen.admit(original.replace("\n", "  ").upper())
    half = original[: len(original) // 2] + other[: len(other) // 2]
    assert not seen.admit(half)
    assert seen.admit(other)


def test_overlap_just_below_the_threshold_is_admitted() -> None:
    seen = SeenText(0.3)
    seen.admit(sentences("a", 100))
    mixed = sentences("a", 10) + sentences("c", 90)
    assert seen.admit(mixed)


def test_shingles_are_the_same_everywhere() -> None:
    text = " ".join(f"word{i}" for i in range(60))
    assert shingles(text)[:2].tolist() == shingles(text.upper() + "!")[:2].tolist() == [4014965635971969944, 4227520036678438432]
    assert len(shingles("only seven words are too few here")) == 0


def test_repeated_blocks_are_removed() -> None:
    blocks = SeenBlocks()
    licence = sentences("licence", 4)
    assert blocks.strip(f"one\n\n{licence}\n\ntwo") == f"one\n\n{licence}\n\ntwo"
    assert blocks.strip(f"three\n\n{licence}\n\ntwo") == "three\n\ntwo"
