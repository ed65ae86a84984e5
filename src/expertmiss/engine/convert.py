"""GGUF files from a Qwen3-MoE folder such as the built-in model, with the ``gguf`` package.

Experts are stored one after another in one tensor per projection, as llama.cpp multiplies them; routers and norms stay float32 in every type,
so that the routing of a quantised file differs from the original only by what its matrices do to the hidden state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expertmiss.errors import UserError, suggest
from expertmiss.files import atomic_path, read_json

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0")
# llama.cpp's name for: digits one by one, then GPT-2's pattern.
PRE_TOKENIZER = "smollm"
DIGITS_THEN_BYTES = ["Digits", "ByteLevel"]


def convert(folder: Path, target: Path, kind: str = "F32") -> Path:
    """Write ``target`` from the model in ``folder``.

    Args:
        folder: config.json, model.safetensors and tokenizer.json.
        kind: type of the matrices, one of ``TYPES``.

    Raises:
        UserError: an unknown type, or a model or tokenizer that the target format would not run in the same way.
    """
    import gguf

    if kind not in TYPES:
        raise UserError(f"type '{kind}': no such type; {suggest(kind, TYPES)}")
    config = read_json(folder / "config.json")
    _check_config(folder, config)
    with atomic_path(target) as path:
        writer = gguf.GGUFWriter(path, "qwen3moe")
        _describe(writer, folder, config)
        _add_tokenizer(writer, folder, config)
        for name, values in _tensors(folder, config):
            _add(writer, name, values, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return target


def _check_config(folder: Path, config: dict[str, Any]) -> None:
    needed = {"model_type": "qwen3_moe", "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "attention_bias": False}
    for key, value in needed.items():
        if config.get(key, value) != value:
            raise UserError(f"{folder / 'config.json'}: {key} is {config[key]!r}; only models with {value!r} are converted here")


def _describe(writer: Any, folder: Path, config: dict[str, Any]) -> None:
    rope = config.get("rope_parameters") or {"rope_theta": config.get("rope_theta", 10000.0), "rope_type": "default"}
    if rope.get("rope_type", "default") != "default":
        raise UserError(f"{folder / 'config.json'}: rope_type is {rope['rope_type']!r}; only 'default' is converted here")
    writer.add_name(folder.name)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(float(rope["rope_theta"]))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_expert_count(_experts(config))
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_vocab_size(config["vocab_size"])


def _experts(config: dict[str, Any]) -> int:
    return int(config.get("num_local_experts") or config["num_experts"])


def _add_tokenizer(writer: Any, folder: Path, config: dict[str, Any]) -> None:
    import gguf

    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    model, before = tokenizer["model"], tokenizer["pre_tokenizer"] or {"type": "none"}
    parts = [part["type"] for part in before.get("pretokenizers", [before])]
    if model["type"] != "BPE" or parts != DIGITS_THEN_BYTES or tokenizer["normalizer"] is not None:
        raise UserError(f"{folder / 'tokenizer.json'}: only byte-level BPE that splits digits is converted here, not {parts}")
    vocabulary: dict[str, int] = model["vocab"]
    names = {index: word for word, index in vocabulary.items()}
    special = {added["id"] for added in tokenizer["added_tokens"] if added["special"]}
    words, kinds = [], []
    for index in range(config["vocab_size"]):
        words.append(names.get(index, f"[unused{index}]"))
        known = gguf.TokenType.CONTROL if index in special else gguf.TokenType.NORMAL
        kinds.append(known if index in names else gguf.TokenType.UNUSED)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZER)
    writer.add_token_list(words)
    writer.add_token_types(kinds)
    writer.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)


def _tensors(folder: Path, config: dict[str, Any]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Names as llama.cpp has them, values in float32; one layer's experts in memory at a time."""
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "pt") as weights:

        def read(name: str) -> NDArray[np.float32]:
            values: NDArray[np.float32] = weights.get_tensor(name).float().numpy()
            return values

        yield "token_embd.weight", read("model.embed_tokens.weight")
        yield "output_norm.weight", read("model.norm.weight")
        if not config["tie_word_embeddings"]:
            yield "output.weight", read("lm_head.weight")
        for layer in range(config["num_hidden_layers"]):
            source, block = f"model.layers.{layer}", f"blk.{layer}"
            for ours, theirs in {
                "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
                "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
                "ffn_norm": "post_attention_layernorm", "ffn_gate_inp": "mlp.gate",
            }.items():  # fmt: skip
                yield f"{block}.{ours}.weight", read(f"{source}.{theirs}.weight")
            for part in ("gate", "up", "down"):
                experts = [read(f"{source}.mlp.experts.{expert}.{part}_proj.weight") for expert in range(_experts(config))]
                yield f"{block}.ffn_{part}_exps.weight", np.stack(experts)


def _add(writer: Any, name: str, values: NDArray[np.float32], kind: str) -> None:
    import gguf
    from gguf.quants import quantize

    if values.ndim == 1 or "ffn_gate_inp" in name or kind == "F32":
        writer.add_tensor(name, values)
    else:
        wanted = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, quantize(values, wanted), raw_dtype=wanted)
