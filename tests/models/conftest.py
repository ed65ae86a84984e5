"""A tiny random Qwen3-MoE model folder with a tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models

from expertmiss.models.export import to_transformers
from expertmiss.models.fast_model import FastModel
from expertmiss.models.options import ModelShape

TINY = ModelShape(
    vocab_size=64, hidden_size=32, layers=2, heads=2, kv_heads=1, head_dim=16, experts=16, experts_per_token=4, max_positions=64
)  # fmt: skip


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny_model")
    to_transformers(FastModel(TINY, 5), torch.float32).save_pretrained(folder)
    Tokenizer(models.WordLevel({"<|endoftext|>": 0, "a": 1}, unk_token="a")).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}))
    return folder
