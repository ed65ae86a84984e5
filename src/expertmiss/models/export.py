"""Between the training form and the folder that transformers loads."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, Qwen3MoeConfig, Qwen3MoeForCausalLM

from expertmiss.files import atomic_path, sha256_file, write_json
from expertmiss.models.fast_model import FastModel
from expertmiss.models.options import ModelShape, TrainOptions
from expertmiss.models.train_state import Position


def transformers_config(shape: ModelShape, **special: int | None) -> Any:
    """The Qwen3-MoE configuration of ``shape``; ``special`` are ids of special tokens."""
    return Qwen3MoeConfig(
        vocab_size=shape.vocab_size, hidden_size=shape.hidden_size, intermediate_size=shape.experts_per_token * shape.expert_size,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim,
        num_experts=shape.experts, num_experts_per_tok=shape.experts_per_token, moe_intermediate_size=shape.expert_size,
        max_position_embeddings=shape.max_positions, rms_norm_eps=shape.norm_eps, norm_topk_prob=True, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta}, **special,
    )  # fmt: skip


def to_transformers(model: FastModel, dtype: torch.dtype, **special: int | None) -> Any:
    """A ``Qwen3MoeForCausalLM`` with the weights of ``model``, in ``dtype``."""
    result = Qwen3MoeForCausalLM(transformers_config(model.shape, **special))
    missing, unexpected = result.load_state_dict(model.state_dict(), strict=False)
    assert missing == ["lm_head.weight"] and not unexpected, (missing, unexpected)
    return result.to(dtype).eval()


def from_transformers(model: Any) -> FastModel:
    """The fast form of a ``Qwen3MoeForCausalLM`` with tied embeddings and MoE blocks in every layer, in float32."""
    c = model.config
    shape = ModelShape(
        c.vocab_size, c.hidden_size, c.num_hidden_layers, c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.num_experts,
        c.num_experts_per_tok, c.moe_intermediate_size, c.max_position_embeddings, c.rope_parameters["rope_theta"], c.rms_norm_eps,
    )  # fmt: skip
    result = FastModel(shape)
    result.load_state_dict({name: value.float() for name, value in model.state_dict().items() if name != "lm_head.weight"})
    return result


def load_fast(folder: Path) -> FastModel:
    """The fast form, in float32, of a model that :func:`export_model` wrote."""
    return from_transformers(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))


def export_model(model: FastModel, options: TrainOptions, position: Position, held_out: dict[str, float], data: Path, out: Path) -> None:
    """Write ``out``: what ``transformers`` loads (bfloat16), the tokenizer, and ``training.json`` last.

    Args:
        model: trained weights.
        options: the recipe; ``position``: steps and time it took; ``held_out``: NLL per domain in nats per token.
        data: folder whose ``tokenizer/`` is copied.
    """
    tokenizer = AutoTokenizer.from_pretrained(data / "tokenizer")
    special = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    result = to_transformers(model, torch.bfloat16, **special)
    result.generation_config = GenerationConfig(do_sample=False, **special)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".export.") as name:
        folder = Path(name)
        result.save_pretrained(folder)
        for file in sorted((data / "tokenizer").iterdir()):
            shutil.copyfile(file, folder / file.name)
        files = sorted(folder.iterdir())
        for file in files:
            with atomic_path(out / file.name) as temporary:
                shutil.copyfile(file, temporary)
    tokens = options.batch * options.sequence
    write_json(
        out / "training.json",
        {
            "description": "a small model trained by this project",
            "options": dataclasses.asdict(options),
            "steps": {"trunk": position.branch, "decay": position.decay_steps, "total": position.step},
            "tokens": position.step * tokens,
            "seconds": round(position.seconds, 1),
            "held_out_nll": held_out,
            "parameters": sum(p.numel() for p in model.parameters()),
            "data": {file.name: sha256_file(file) for file in sorted(data.glob("*.bin"))},
            "files": {file.name: sha256_file(out / file.name) for file in files},
            "software": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "numpy")},
            "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
        },
    )
