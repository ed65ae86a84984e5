"""Loading a model and its tokenizer, with errors that say which files to place where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from expertmiss.errors import UserError, suggest

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
NEEDED = "config.json, the *.safetensors weights (and their index), tokenizer.json and tokenizer_config.json"


def load_model(path: str | Path, dtype: str = "float32", device: str = "cpu", revision: str | None = None) -> tuple[Any, Any]:
    """A causal language model in evaluation mode, and its tokenizer.

    Args:
        path: a folder, or the name of a model on the hub (``owner/name``).
        dtype: ``float32``, ``bfloat16`` or ``float64``.
        device: torch device.
        revision: hub revision.

    Raises:
        UserError: the folder or a file in it is missing, the hub cannot be reached, the files cannot be read or do not hold exactly
            the model's weights, the dtype or the device is unknown.
    """
    if dtype not in DTYPES:
        raise UserError(f"model.dtype '{dtype}': no such type; {suggest(dtype, DTYPES)}")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    _check_folder(path)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, revision=revision)
        # The grouped matrix kernel that transformers chooses by itself does not know float64.
        experts = {"experts_implementation": "eager"} if dtype == "float64" else {}
        model, loading = AutoModelForCausalLM.from_pretrained(
            path, revision=revision, dtype=DTYPES[dtype], output_loading_info=True, **experts
        )
    except Exception as problem:  # a damaged file makes the libraries raise nearly every kind
        raise _explain(path, problem) from problem
    _check_weights(path, loading)
    try:
        return model.to(device).eval(), tokenizer
    except (RuntimeError, AssertionError) as problem:  # torch without CUDA answers 'cuda' with an AssertionError
        raise UserError(f"model.device '{device}': cannot be used ({_first_line(problem)})") from problem


def _check_folder(path: str | Path) -> None:
    folder = Path(path)
    if folder.is_dir():
        for name in ("config.json", "tokenizer.json"):
            if not (folder / name).is_file():
                raise UserError(f"{folder / name}: no such file; a model folder holds {NEEDED}")
        if not any(folder.glob("*.safetensors")):
            raise UserError(f"{folder}: no *.safetensors weights; a model folder holds {NEEDED}")
    elif str(path).count("/") != 1 or str(path).startswith((".", "/", "~", "models/")):
        raise UserError(f"{path}: no such model folder; place {NEEDED} there")


def _check_weights(path: str | Path, loading: dict[str, Any]) -> None:
    """Refuse a checkpoint whose weights the library would fill with random numbers or leave out; tied weights are not missing."""
    for kind, reason in (
        ("mismatched_keys", "another shape than config.json says"),
        ("missing_keys", "not in the checkpoint"),
        ("unexpected_keys", "not a weight of this model"),
    ):
        names = sorted(str(key[0] if isinstance(key, tuple) else key) for key in loading[kind])
        if names:
            raise UserError(
                f"{path}: weight '{names[0]}' is {reason} ({len(names)} in all); restore config.json and every *.safetensors file"
            )


def _explain(path: str | Path, problem: Exception) -> UserError:
    if Path(path).is_dir() or not isinstance(problem, OSError | ValueError):
        return UserError(f"{path}: cannot be loaded ({_first_line(problem)}); restore the model's files")
    return UserError(
        f"{path}: not in the local cache and the hub cannot be reached (or HF_HUB_OFFLINE is set); place {NEEDED} in a folder and "
        f"set model.path to it"
    )


def _first_line(problem: Exception) -> str:
    return next(iter(str(problem).splitlines()), type(problem).__name__)[:200]
