"""The model that ships: whole, small enough, and loadable without any of this project's code."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from expertmiss.files import sha256_file
from expertmiss.models.export import from_transformers

BUILTIN = Path(__file__).parents[2] / "models" / "builtin"


def test_files_are_those_that_were_trained_and_fit_in_64_mb() -> None:
    training = json.loads((BUILTIN / "training.json").read_text())
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} <= training["files"].keys()
    for name, digest in training["files"].items():
        assert sha256_file(BUILTIN / name) == digest, name
    assert sum(file.stat().st_size for file in BUILTIN.iterdir()) <= 64_000_000
    steps, options = training["steps"], training["options"]
    assert steps["total"] == steps["trunk"] + steps["decay"]
    assert training["tokens"] == steps["total"] * options["batch"] * options["sequence"]


def test_loads_with_plain_transformers_and_has_learnt() -> None:
    model = AutoModelForCausalLM.from_pretrained(BUILTIN)
    tokenizer = AutoTokenizer.from_pretrained(BUILTIN)
    config = model.config
    assert (config.model_type, config.num_experts, config.num_experts_per_tok, config.norm_topk_prob) == ("qwen3_moe", 256, 8, True)
    assert all(size % 32 == 0 for size in (config.hidden_size, config.moe_intermediate_size, config.head_dim, config.vocab_size))
    assert config.tie_word_embeddings and config.max_position_embeddings >= 1024 and len(tokenizer) == config.vocab_size
    text = "def add(first, second):\n    return first + second\n\n\nclass Point:\n    def __init__(self, x, y):\n        self.x = x\n        self.y = y\n"
    ids = torch.tensor([[tokenizer.eos_token_id, *tokenizer(text, add_special_tokens=False)["input_ids"]]])
    with torch.no_grad():
        loss, _, _ = from_transformers(model).loss(ids, None)
        logits = model.float()(ids).logits
    assert float(loss) < 0.6 * np.log(config.vocab_size)
    expected = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:])
    torch.testing.assert_close(loss, expected, atol=1e-3, rtol=0)
