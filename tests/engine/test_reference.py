"""The reference itself: what the engine calls stock equals llama-cpp-python's own calls, in a process without the engine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from expertmiss.engine.session import Engine, EngineOptions
from tests.engine.random_gguf import Shape, tokens

PROGRAM = """
import sys, numpy as np, llama_cpp as ll
path, out, repack = sys.argv[1], sys.argv[2], sys.argv[3] == "repack"
text = np.load(out)
ll.llama_backend_init()
model_options = ll.llama_model_default_params()
model_options.n_gpu_layers, model_options.use_extra_bufts = 0, repack
model = ll.llama_model_load_from_file(path.encode(), model_options)
options = ll.llama_context_default_params()
options.n_ctx, options.n_batch, options.n_ubatch, options.n_threads, options.n_threads_batch = 256, 512, 512, 1, 1
options.flash_attn_type = ll.LLAMA_FLASH_ATTN_TYPE_DISABLED
context = ll.llama_init_from_model(model, options)
width = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
logits = []
for token in text:
    assert ll.llama_decode(context, ll.llama_batch_get_one((ll.llama_token * 1)(int(token)), 1)) == 0
    logits.append(np.ctypeslib.as_array(ll.llama_get_logits_ith(context, -1), (width,)).copy())
np.save(out, np.array(logits))
"""


def test_stock_is_llama_cpps_own(model_file: Callable[..., Path], tmp_path: Path) -> None:
    text = tokens(Shape(), 100)
    engine = Engine(model_file("qwen3moe", "Q4_0"), EngineOptions(context=256))
    engine.start_stock()
    stock = np.array([engine.step(token) for token in text])
    out = tmp_path / "text.npy"
    np.save(out, text)
    subprocess.run([sys.executable, "-c", PROGRAM, str(model_file("qwen3moe", "Q4_0")), str(out), "plain"], check=True, capture_output=True)
    assert np.load(out).tobytes() == stock.tobytes()
