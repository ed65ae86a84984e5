"""Whether the engine can run a configuration here; asked while the workflow is parsed, so nothing heavy is imported."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from expertmiss.files import read_json

CONVERTED = "qwen3_moe"


def why_not(root: Path, config: Mapping[str, Any]) -> str | None:
    """Why the engine cannot run this configuration here, in a few words; ``None`` when it can.

    Compiling the engine itself takes a minute and is a rule of the workflow; llama.cpp takes many, and is left to `make setup-engine`.
    """
    if importlib.util.find_spec("llama_cpp") is None:
        return "the engine is not built; run `make setup-engine`"
    folder = root / config["model"]["path"]
    if not (folder / "config.json").is_file() or read_json(folder / "config.json").get("model_type") != CONVERTED:
        return "no GGUF file is made of this model; only folders of Qwen3-MoE models are converted"
    return None
