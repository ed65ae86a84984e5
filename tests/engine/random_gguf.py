"""GGUF models with random weights, small enough for tests: no language, but every way of routing that the engine supports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import quantize
from numpy.typing import NDArray

ARCHITECTURES = ("qwen3moe", "qwen3next", "olmoe", "granitemoe", "gpt-oss", "glm4moe")
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0")


@dataclass(frozen=True)
class Shape:
    """A model's geometry. ``kind`` is the architecture, with ``qwen3next-fused`` for one tensor of gates and ups, and
    ``qwen3moe-scaled`` for a factor per expert on every product."""

    kind: str = "qwen3moe"
    experts: int = 32
    top_k: int = 4
    hidden: int = 64
    width: int = 32
    layers: int = 4
    vocabulary: int = 256
    heads: int = 4
    kv_heads: int = 2
    head: int = 16

    @property
    def architecture(self) -> str:
        """Its name in the file."""
        name = self.kind.split("-")[0]
        return {"gpt": "gpt-oss", "granitemoe": "granite", "dense": "qwen3"}.get(name, name)


class Maker:
    """Writes one model."""

    def __init__(self, path: Path, shape: Shape, expert_type: str, seed: int, split: int = 0) -> None:
        self.shape, self.random = shape, np.random.default_rng(seed)
        self.type = gguf.GGMLQuantizationType[expert_type]
        self.writer = gguf.GGUFWriter(path, shape.architecture, split_max_tensors=split)

    @property
    def kv_size(self) -> int:
        """Width of keys; olmoe has as many key heads as query heads."""
        return self.shape.head * (self.shape.heads if self.shape.kind == "olmoe" else self.shape.kv_heads)

    def tensor(self, name: str, *size: int, std: float = 0.05) -> None:
        """Normal numbers of ``std``, or ones when it is 0."""
        values = self.random.normal(0, std, size) if std else np.ones(size)
        self.writer.add_tensor(name, values.astype(np.float32))

    def expert_tensor(self, name: str, *size: int) -> None:
        """In the type that is asked for; the spread keeps activations of the order of 1."""
        values = self.random.normal(0, 0.1, size).astype(np.float32)
        if self.type == gguf.GGMLQuantizationType.F16:
            self.writer.add_tensor(name, values.astype(np.float16))
        else:
            self.writer.add_tensor(name, quantize(values, self.type), raw_dtype=self.type)

    def header(self) -> None:
        """What every architecture says about itself."""
        shape, writer, name = self.shape, self.writer, self.shape.architecture
        writer.add_block_count(shape.layers)
        writer.add_context_length(4096)
        writer.add_embedding_length(shape.hidden)
        writer.add_feed_forward_length(shape.width if shape.kind in ("olmoe", "granitemoe") else 2 * shape.hidden)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_vocab_size(shape.vocabulary)
        writer.add_rope_freq_base(10000.0)
        writer.add_head_count(shape.heads)
        writer.add_head_count_kv(self.kv_size // shape.head)
        writer.add_key_length(shape.head)
        writer.add_value_length(shape.head)
        writer.add_tokenizer_model("no_vocab")
        if shape.kind != "dense":
            writer.add_expert_count(shape.experts)
            writer.add_expert_used_count(shape.top_k)
            writer.add_expert_feed_forward_length(shape.width)
        if shape.kind == "granitemoe":
            writer.add_logit_scale(2.0)
            writer.add_residual_scale(0.5)
            writer.add_embedding_scale(3.0)
            writer.add_attention_scale(0.2)
            writer.add_rope_dimension_count(shape.head)
        if shape.kind == "gpt-oss":
            writer.add_uint32(f"{name}.attention.sliding_window", 128)
            writer.add_rope_dimension_count(shape.head)
        if shape.kind == "glm4moe":
            writer.add_expert_shared_count(1)
            writer.add_leading_dense_block_count(1)
            writer.add_expert_weights_scale(2.5)
            writer.add_expert_weights_norm(True)
            writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
            writer.add_rope_dimension_count(shape.head // 2)
        if shape.architecture == "qwen3next":
            writer.add_rope_dimension_count(8)
            for key, value in {
                "ssm.conv_kernel": 4, "ssm.inner_size": 64, "ssm.state_size": 16, "ssm.time_step_rank": 4, "ssm.group_count": 2,
                "full_attention_interval": 4, "expert_shared_feed_forward_length": shape.width,
            }.items():  # fmt: skip
                writer.add_uint32(f"{name}.{key}", value)

    def attention(self, block: str, queries: int = 1) -> None:
        """Full attention."""
        shape = self.shape
        size = shape.heads * shape.head
        self.tensor(f"{block}.attn_q.weight", size * queries, shape.hidden)
        self.tensor(f"{block}.attn_k.weight", self.kv_size, shape.hidden)
        self.tensor(f"{block}.attn_v.weight", self.kv_size, shape.hidden)
        self.tensor(f"{block}.attn_output.weight", shape.hidden, size)
        if shape.kind == "gpt-oss":
            for name, width in (("q", size), ("k", self.kv_size), ("v", self.kv_size), ("output", shape.hidden)):
                self.tensor(f"{block}.attn_{name}.bias", width)
            self.tensor(f"{block}.attn_sinks.weight", shape.heads)
        elif shape.kind == "olmoe":  # norms over all heads
            self.tensor(f"{block}.attn_q_norm.weight", size, std=0)
            self.tensor(f"{block}.attn_k_norm.weight", self.kv_size, std=0)
        elif shape.kind != "granitemoe":
            self.tensor(f"{block}.attn_q_norm.weight", shape.head, std=0)
            self.tensor(f"{block}.attn_k_norm.weight", shape.head, std=0)

    def linear_attention(self, block: str) -> None:
        """qwen3next's delta rule."""
        hidden, keys, values = self.shape.hidden, 32, 64
        self.tensor(f"{block}.attn_qkv.weight", 2 * keys + values, hidden)
        self.tensor(f"{block}.attn_gate.weight", values, hidden)
        self.tensor(f"{block}.ssm_conv1d.weight", 2 * keys + values, 4, std=0.3)
        self.tensor(f"{block}.ssm_dt.bias", 4)
        self.writer.add_tensor(f"{block}.ssm_a", -np.abs(self.random.normal(0, 1, 4)).astype(np.float32))
        self.tensor(f"{block}.ssm_ba.weight", 8, hidden)
        self.tensor(f"{block}.ssm_norm.weight", 16, std=0)
        self.tensor(f"{block}.ssm_out.weight", hidden, values)

    def experts(self, block: str) -> None:
        """Router and experts."""
        shape = self.shape
        count, width, hidden = shape.experts, shape.width, shape.hidden
        self.tensor(f"{block}.ffn_gate_inp.weight", count, hidden, std=0.3)
        if shape.kind.endswith("-fused"):
            self.expert_tensor(f"{block}.ffn_gate_up_exps.weight", count, 2 * width, hidden)
        else:
            self.expert_tensor(f"{block}.ffn_gate_exps.weight", count, width, hidden)
            self.expert_tensor(f"{block}.ffn_up_exps.weight", count, width, hidden)
        self.expert_tensor(f"{block}.ffn_down_exps.weight", count, hidden, width)
        if shape.kind == "gpt-oss":
            self.tensor(f"{block}.ffn_gate_inp.bias", count, std=0.3)
            for name, size in (("gate", width), ("up", width), ("down", hidden)):
                self.tensor(f"{block}.ffn_{name}_exps.bias", count, size, std=0.3)
        if shape.kind.endswith("-scaled"):
            for name in ("gate", "up", "down"):
                self.writer.add_tensor(f"{block}.ffn_{name}_exps.scale", self.random.uniform(0.5, 1.5, count).astype(np.float32))
        if shape.kind == "glm4moe":
            self.tensor(f"{block}.exp_probs_b.bias", count, std=0.05)
        if shape.kind == "glm4moe" or shape.architecture == "qwen3next":
            self.dense(block, width, "_shexp")
        if shape.architecture == "qwen3next":
            self.tensor(f"{block}.ffn_gate_inp_shexp.weight", hidden)

    def dense(self, block: str, width: int, suffix: str = "") -> None:
        """A plain feed-forward part, or a shared expert."""
        self.tensor(f"{block}.ffn_gate{suffix}.weight", width, self.shape.hidden)
        self.tensor(f"{block}.ffn_up{suffix}.weight", width, self.shape.hidden)
        self.tensor(f"{block}.ffn_down{suffix}.weight", self.shape.hidden, width)

    def write(self) -> None:
        """The whole file."""
        shape = self.shape
        self.header()
        self.tensor("token_embd.weight", shape.vocabulary, shape.hidden, std=1.0)
        self.tensor("output_norm.weight", shape.hidden, std=0)
        self.tensor("output.weight", shape.vocabulary, shape.hidden, std=0.2)
        second = "post_attention_norm" if shape.architecture in ("qwen3next", "gpt-oss", "glm4moe") else "ffn_norm"
        for layer in range(shape.layers):
            block = f"blk.{layer}"
            self.tensor(f"{block}.attn_norm.weight", shape.hidden, std=0)
            self.tensor(f"{block}.{second}.weight", shape.hidden, std=0)
            if shape.architecture == "qwen3next" and (layer + 1) % 4:
                self.linear_attention(block)
            else:
                self.attention(block, queries=2 if shape.architecture == "qwen3next" else 1)
            if shape.kind == "dense" or (shape.kind == "glm4moe" and layer == 0):
                self.dense(block, 2 * shape.hidden)
            else:
                self.experts(block)
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def make(path: Path, shape: Shape = Shape(), expert_type: str = "F32", seed: int = 0, split: int = 0) -> Path:
    """Write a model to ``path``, in files of ``split`` tensors when that is not 0; the path of the (first) file."""
    Maker(path, shape, expert_type, seed, split).write()
    if not split:
        return path
    return sorted(path.parent.glob(f"{path.stem}-00001-of-*.gguf"))[0]


def tokens(shape: Shape, count: int, seed: int = 1) -> NDArray[np.int64]:
    """Random text."""
    return np.random.default_rng(seed).integers(0, shape.vocabulary, count)
