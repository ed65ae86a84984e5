"""A miniature of the built-in corpus: wheels made here, in the form of real ones, in every split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from expertmiss.stages import Context
from tests.corpora.samples import make_wheel, module, requirement, sentences


@pytest.fixture
def context() -> Context:
    return Context("default", "by hand")


@pytest.fixture
def corpus(tmp_path: Path) -> dict[str, Any]:
    """Corpus section with two packages in every split; ``train_copy`` in split train repeats an exploratory package."""
    cache, lists = tmp_path / "cache", tmp_path / "packages"
    lists.mkdir()
    lines: dict[str, str] = {"train": "", "evaluation": ""}
    for split in ("calibration", "pilot", "exploratory", "confirmatory", "generation", "train"):
        for number in range(2):
            name = f"{split}{number}"
            members = {f"{name}/core.py": module(name, 60), f"{name}/guide.rst": sentences(name, 40)}
            wheel = make_wheel(cache, name, members)
            lines["train" if split == "train" else "evaluation"] += requirement(wheel, split)
    copy = {"train_copy/core.py": module("exploratory0", 60), "train_copy/guide.rst": sentences("exploratory0", 40)}
    lines["train"] += requirement(make_wheel(cache, "train_copy", copy), "train")
    for name, text in lines.items():
        (lists / f"{name}.txt").write_text(text, encoding="utf-8")
    return {
        "name": "builtin", "kind": "builtin", "splits": ["calibration", "pilot", "exploratory"],
        "domains": ["code", "prose", "markup", "translations", "word_problems", "functions", "records"],
        "packages": str(lists), "cache": str(cache), "seed": 0, "characters": 1000, "documents_per_source": 2, "documents_per_domain": 3,
        "near_duplicate_threshold": 0.3, "problems_per_template": 1, "scored_steps": [1, 3], "scored_largest": [1, 99], "scored_parts": [0, 2], "tokens": 64, "shift_split": "exploratory", "shift_streams": 2,
        "shift_piece_tokens": 24, "shift_topics": 2, "train_characters_per_source": 4000, "train_characters_generated": 3000,
        "tokenizer_characters": 3000, "vocab": 400,
    }  # fmt: skip
