"""The built-in model as GGUF: the same tokens and, to rounding, the same logits as transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from expertmiss.engine.convert import convert
from expertmiss.engine.session import Engine, EngineOptions
from expertmiss.errors import UserError
from expertmiss.models.load import load_model
from tests.engine.builtin import BUILTIN, DOCUMENTS, builtin_file
from tests.engine.test_exactness import FETCH_ALL

TEXT = DOCUMENTS[0] + " 12345 déjà vu \u00b2\u00bd 北京  \n\n\tx = 3.14 <|endoftext|> don't"


def test_tokens_are_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    from transformers import AutoTokenizer

    engine = Engine(builtin_file(tmp_path_factory, "F32"), EngineOptions(store="mapped"))
    ids = engine.tokenize(TEXT)
    assert ids == AutoTokenizer.from_pretrained(BUILTIN)(TEXT)["input_ids"]
    assert b"".join(engine.piece(token) for token in engine.tokenize(DOCUMENTS[0])).decode() == DOCUMENTS[0]
    assert engine.ends_text(0) and not engine.ends_text(1)


@pytest.mark.parametrize(("kind", "tolerance"), [("F32", 1e-4), ("Q8_0", 0.5)])
def test_logits_are_those_of_transformers(kind: str, tolerance: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    """float32: 1.4e-5 seen, on logits up to 12. Q8_0: the weights are rounded to 8 bits; a wrong scale or order of tensors gives > 5."""
    torch.set_num_threads(1)
    engine = Engine(builtin_file(tmp_path_factory, kind), EngineOptions(store="mapped", cache_type="f32"))
    model, _ = load_model(BUILTIN)
    ids = engine.tokenize(TEXT)[:200]
    engine.start(FETCH_ALL, 64)
    ours = np.stack([engine.step(token) for token in ids])
    with torch.inference_mode():
        theirs = model(torch.tensor([ids])).logits[0].numpy()
    assert np.abs(theirs).max() > 5
    difference = np.abs(ours - theirs)
    assert (
        difference.max() <= tolerance if kind == "F32" else np.median(difference) <= tolerance / 10 and difference.mean() <= tolerance / 5
    )


def test_what_is_not_converted(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'Q8_0'"):
        convert(BUILTIN, tmp_path / "x.gguf", "Q8")
    for key, value in (("norm_topk_prob", False), ("model_type", "olmoe"), ("rope_parameters", {"rope_type": "yarn", "rope_theta": 1e4})):
        folder = tmp_path / key
        shutil.copytree(BUILTIN, folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, key: value}))
        with pytest.raises(UserError, match="only"):
            convert(folder, tmp_path / "x.gguf")
    tokenizer = json.loads((BUILTIN / "tokenizer.json").read_text())
    for before in (None, {"type": "Whitespace"}):
        folder = tmp_path / f"split by {before}"
        shutil.copytree(BUILTIN, folder)
        (folder / "tokenizer.json").write_text(json.dumps({**tokenizer, "pre_tokenizer": before}))
        with pytest.raises(UserError, match="only byte-level BPE that splits digits is converted"):
            convert(folder, tmp_path / "x.gguf")
    assert not (tmp_path / "x.gguf").exists()
