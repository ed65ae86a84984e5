"""Tiny random models of every architecture that has an adapter: 16 experts, top-4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

COMMON = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}
TINY: dict[str, dict[str, Any]] = {
    "qwen3_moe": {
        **COMMON, "num_hidden_layers": 3, "intermediate_size": 32, "moe_intermediate_size": 16, "head_dim": 8, "num_experts": 16, "num_experts_per_tok": 4,
        "norm_topk_prob": True, "decoder_sparse_step": 1,
    },
    "qwen3_next": {
        **COMMON, "num_hidden_layers": 4, "intermediate_size": 32, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "head_dim": 8,
        "num_experts": 16, "num_experts_per_tok": 4, "norm_topk_prob": True, "decoder_sparse_step": 1, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_conv_kernel_dim": 4,
    },
    "olmoe": {**COMMON, "num_hidden_layers": 3, "intermediate_size": 16, "num_experts": 16, "num_experts_per_tok": 4, "norm_topk_prob": False},
    "granitemoe": {**COMMON, "num_hidden_layers": 3, "intermediate_size": 16, "num_local_experts": 16, "num_experts_per_tok": 4},
}  # fmt: skip


def tiny_model(kind: str, dtype: torch.dtype = torch.float32, seed: int = 0, **changes: Any) -> Any:
    """A random model with spread-out router logits, in evaluation mode, attention by sdpa; ``changes`` are options of its configuration."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(kind, **{**TINY[kind], **changes})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("gate.weight", "router.weight")):
                parameter.normal_(std=0.5)
            elif parameter.dim() == 3:
                parameter.normal_(std=0.2)
    model.config._experts_implementation = "eager"  # torch's grouped products have no float64 form
    return model.to(dtype).eval()


def save_tiny(kind: str, folder: Path, seed: int = 0, **changes: Any) -> None:
    """A model folder with a tokenizer that knows one word."""
    tiny_model(kind, seed=seed, **changes).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({"<|endoftext|>": 0}, unk_token="<|endoftext|>"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
