"""Peak memory of the layer-by-layer emulator on a checkpoint larger than a memory cap.

    python benchmarks/emulator_memory.py [--layers 12] [--experts 64] [--hidden 512] [--inner 256] [--cap 0.5] [--json FILE]

A random-weight Qwen3-MoE checkpoint is written, one file a layer. A process of its own evaluates two policies on it with its data segment limited to
what it holds after imports and a first small forward pass (kernels, thread stacks) plus ``cap`` times the checkpoint, so that the weights cannot be held
at once. Peak memory is the kernel's own high-water mark (VmHWM), reset after that first pass. Target: peak above that point at most 1.3 times
the largest layer + activations. The tokens are random and the weights untrained: no perplexity is reported.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

DOCUMENTS = 4


def config_of(given: argparse.Namespace) -> Any:
    from transformers import Qwen3MoeConfig

    return Qwen3MoeConfig(
        vocab_size=4096, hidden_size=given.hidden, intermediate_size=given.inner, moe_intermediate_size=given.inner, num_hidden_layers=given.layers,
        num_attention_heads=8, num_key_value_heads=2, head_dim=64, num_experts=given.experts, num_experts_per_tok=8, norm_topk_prob=True,
        decoder_sparse_step=1, max_position_embeddings=2048, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip


def write_checkpoint(given: argparse.Namespace, folder: Path) -> tuple[int, int]:
    """(bytes of all weights, of the largest layer); one file a layer."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM

    config = config_of(given)
    config.save_pretrained(folder)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    parts: dict[str, dict[str, Any]] = {}
    for name, like in model.model.state_dict().items():
        part = name.split(".")[1] if name.startswith("layers.") else "rest"
        parts.setdefault(part, {})[f"model.{name}"] = like
    generator, index, sizes = torch.Generator().manual_seed(0), {}, {}
    for part, tensors in parts.items():
        file = f"model-{part}.safetensors"
        filled = {
            name: torch.ones(like.shape) if like.dim() == 1 else torch.randn(like.shape, generator=generator) * like.shape[-1] ** -0.5
            for name, like in tensors.items()
        }
        save_file(filled, folder / file)
        index.update(dict.fromkeys(filled, file))
        sizes[part] = sum(tensor.numel() * tensor.element_size() for tensor in filled.values())
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return sum(sizes.values()), max(size for part, size in sizes.items() if part != "rest")


def status(field: str) -> int:
    """A field of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def child(folder: Path, tokens: int, limit: int) -> None:
    """Evaluate and print the measurements as JSON."""
    import resource

    import numpy as np
    import torch
    from transformers import AutoModelForCausalLM, Qwen3MoeConfig

    from expertmiss.emulate.emulator import Emulator
    from expertmiss.emulate.rows import Row
    from expertmiss.emulate.stream import StreamedEmulator

    torch.set_num_threads(1)
    first_choice = {"name": "first_choice", "miss_rule": {"name": "first_choice"}, "admission": {"name": "every_miss"}, "initial": "cold"}
    rows = [
        Row("fetch_all", {"name": "fetch_all", "miss_rule": {"name": "fetch_all"}, "initial": "cold"}, 16),
        Row("first_choice", first_choice, 16),
    ]
    small = Qwen3MoeConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, moe_intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        head_dim=32, num_experts=16, num_experts_per_tok=8, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    Emulator(AutoModelForCausalLM.from_config(small, attn_implementation="sdpa").eval(), rows, threads=1).whole(np.arange(64), 0)
    streamed = StreamedEmulator(folder, rows, threads=1)
    texts = {document: np.random.default_rng(document).integers(0, 4096, tokens) for document in range(DOCUMENTS)}
    if limit:
        resource.setrlimit(resource.RLIMIT_DATA, (status("VmData") + limit,) * 2)
    Path("/proc/self/clear_refs").write_text("5")
    before, start = status("VmRSS"), time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder) as work:
        streamed.run(texts, Path(work))
    print(json.dumps({"before": before, "peak": status("VmHWM"), "seconds": time.monotonic() - start}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("layers", 12), ("experts", 64), ("hidden", 512), ("inner", 256), ("tokens", 128)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--cap", type=float, default=0.5, help="as a share of the checkpoint")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        child(given.child, given.tokens, given.limit)
        return
    with tempfile.TemporaryDirectory() as name:
        whole, layer = write_checkpoint(given, Path(name))
        limit = int(given.cap * whole)
        command = [sys.executable, __file__, "--child", name, "--tokens", str(given.tokens), "--limit", str(limit)]
        told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
    # Per layer and document: hidden states and its normalised copy, the calls' rows in and out (K of each), their inner products.
    calls, width = 2 * given.tokens * 8, 4
    activations = 2 * given.tokens * given.hidden * width * 4 + calls * (2 * given.hidden + 4 * given.inner) * width
    peak = told["peak"] - told["before"]
    result = {
        "checkpoint_mb": whole / 1e6, "cap_mb": limit / 1e6, "largest_layer_mb": layer / 1e6, "activations_mb": activations / 1e6, "peak_mb": peak / 1e6,
        "ratio": peak / layer, "ratio_with_activations": peak / (layer + activations), "documents": DOCUMENTS, "tokens": given.tokens, "rows": 2,
        "seconds": told["seconds"],
    }  # fmt: skip
    for key, value in result.items():
        print(f"{key:24s} {value:10.3f}")
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
