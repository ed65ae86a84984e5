"""Loading models, and reading their routers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from expertmiss.errors import UserError
from expertmiss.models.adapters import ADAPTERS
from expertmiss.models.load import load_model
from expertmiss.models.routers import RouterRecorder, router_modules


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_recorded_logits_are_the_router_s_own_before_softmax(tiny_folder: Path, dtype: str) -> None:
    """Recomputed here from each router's recorded input, in the model's own type: equal bit for bit."""
    model, tokenizer = load_model(tiny_folder, dtype=dtype)
    assert tokenizer.eos_token == "<|endoftext|>" and not model.training
    recorder = RouterRecorder(model)
    inputs: list[torch.Tensor] = []
    hooks = [router.module.register_forward_hook(lambda module, given, output: inputs.append(given[0])) for router in recorder.routers]
    answers = recorder.run(torch.arange(40).reshape(2, 20))
    assert [hook.remove() for hook in hooks] and len(inputs) == len(answers) == recorder.geometry.layers == 2
    for given, router, answer in zip(inputs, recorder.routers, answers, strict=True):
        with torch.inference_mode():
            logits = torch.nn.functional.linear(given, router.module.weight)
        assert logits.dtype == getattr(torch, dtype) and (logits < 0).any() and (logits > 1).any()
        assert answer.logits.dtype == np.float32 and answer.logits.shape == (40, 16)
        assert np.array_equal(answer.logits, logits.float().numpy())
        top = np.sort(np.argsort(-torch.softmax(logits.float(), -1).numpy(), axis=1, kind="stable")[:, :4], axis=1)
        same = (top == np.sort(answer.ids, axis=1)).all(axis=1)
        assert same.mean() > 0.9 if dtype == "bfloat16" else same.all()


def test_rows_are_document_after_document_and_the_model_is_left_alone(tiny_folder: Path) -> None:
    model, _ = load_model(tiny_folder)
    recorder = RouterRecorder(model)
    text = torch.randint(0, 64, (3, 16), generator=torch.Generator().manual_seed(0))
    together = recorder.run(text)
    for row in range(3):
        alone = recorder.run(text[row : row + 1])
        for layer in range(2):
            np.testing.assert_allclose(together[layer].logits[row * 16 : (row + 1) * 16], alone[layer].logits, atol=1e-5)
    _, logits = recorder.run_with_logits(text)
    plain = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)(text).logits
    torch.testing.assert_close(logits, plain, atol=1e-6, rtol=0)
    assert not any(router.module._forward_hooks for router in recorder.routers)


def test_geometry_and_layers_without_experts() -> None:
    config = Qwen3MoeConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, head_dim=8,
        num_experts=6, num_experts_per_tok=2, moe_intermediate_size=8, mlp_only_layers=[1], norm_topk_prob=False,
    )  # fmt: skip
    geometry = RouterRecorder(Qwen3MoeForCausalLM(config).eval()).geometry
    assert (geometry.layers, geometry.layer_indices, geometry.experts, geometry.top_k) == (2, [0, 2], 6, 2)
    assert (geometry.gating, geometry.normalise, geometry.scale, geometry.bias, geometry.groups) == ("softmax", False, 1.0, None, None)


def test_every_adapter_is_named_after_its_model_type() -> None:
    assert all(name == adapter.model_type for name, adapter in ADAPTERS.items()) and "qwen3_moe" in ADAPTERS


def test_models_without_experts_are_refused() -> None:
    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    with pytest.raises(UserError, match=r"model type 'llama': no router adapter; supported: .*qwen3_moe"):
        router_modules(LlamaForCausalLM(LlamaConfig(**sizes)))
    dense = Qwen3MoeConfig(**sizes, num_key_value_heads=1, head_dim=8, num_experts=4, moe_intermediate_size=8, mlp_only_layers=[0])
    with pytest.raises(UserError, match="no MoE layer"):
        router_modules(Qwen3MoeForCausalLM(dense))


def test_missing_files_are_named(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"models/nothing: no such model folder; place config\.json"):
        load_model("models/nothing")
    with pytest.raises(UserError, match="did you mean 'float32'"):
        load_model(tiny_folder, dtype="float23")
    with pytest.raises(UserError, match=r"model\.device 'nowhere'"):
        load_model(tiny_folder, device="nowhere")
    for number, name in enumerate(("config.json", "tokenizer.json", "model.safetensors")):
        folder = tmp_path / str(number)
        shutil.copytree(tiny_folder, folder)
        (folder / name).unlink()
        with pytest.raises(UserError, match=name if name != "model.safetensors" else r"no \*\.safetensors"):
            load_model(folder)
    damaged = tmp_path / "damaged"
    shutil.copytree(tiny_folder, damaged)
    whole = (damaged / "model.safetensors").read_bytes()
    (damaged / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="damaged: cannot be loaded"):
        load_model(damaged)


def test_hub_out_of_reach_says_which_files_to_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"nobody/nothing: not in the local cache .* place config\.json, .* and set model\.path"):
        load_model("nobody/nothing")


def spoilt_weights(folder: Path, tensors: dict[str, Any]) -> None:
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_weights_that_are_not_the_model_s_are_refused(tiny_folder: Path, tmp_path: Path) -> None:
    """Never filled with random numbers, never left out."""
    name = "model.layers.1.mlp.gate.weight"
    for change, message in (
        ("missing", f"weight '{name}' is not in the checkpoint"),
        ("unexpected", "weight 'model.other.weight' is not a weight of this model"),
        ("mismatched", "cannot be loaded|another shape"),
    ):
        folder = tmp_path / change
        shutil.copytree(tiny_folder, folder)
        tensors = load_file(folder / "model.safetensors")
        if change == "missing":
            del tensors[name]
        elif change == "unexpected":
            tensors["model.other.weight"] = torch.zeros(3)
        else:
            tensors[name] = tensors[name][:, :8].contiguous()
        spoilt_weights(folder, tensors)
        with pytest.raises(UserError, match=message) as caught:
            load_model(folder)
        assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


def test_tied_output_weights_are_not_missing(tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tied"
    shutil.copytree(tiny_folder, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    tensors = load_file(folder / "model.safetensors")
    tensors.pop("lm_head.weight", None)
    spoilt_weights(folder, tensors)
    model, _ = load_model(folder)
    assert torch.equal(model.lm_head.weight, model.model.embed_tokens.weight)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", "[1, 2]"),
        ("config.json", "{"),
        ("config.json", '{"model_type": "qwen3_moe", "hidden_size": "wide"}'),
        ("config.json", '{"model_type": "qwen3_moe", "hidden_size": 48, "num_attention_heads": 5, "vocab_size": 7}'),
        ("tokenizer.json", "{}"),
        ("tokenizer.json", "[]"),
    ],
)
def test_damaged_files_are_one_line(tiny_folder: Path, tmp_path: Path, name: str, content: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    (folder / name).write_text(content)
    with pytest.raises(UserError) as caught:
        load_model(folder)
    assert str(caught.value).startswith(str(folder)) and "\n" not in str(caught.value)


def test_cuda_without_cuda_is_one_line(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(*arguments: Any, **options: Any) -> None:
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr(torch.nn.Module, "to", without)
    with pytest.raises(UserError, match=r"model\.device 'cuda': cannot be used \(Torch not compiled"):
        load_model(tiny_folder, device="cuda")
