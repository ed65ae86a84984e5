"""The C header is C, and a program on it decodes the same bits."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np

from expertmiss.engine.library import build_folder, llama_root
from expertmiss.engine.session import Engine, EngineOptions
from tests.engine.builtin import ROOT
from tests.engine.random_gguf import Shape, tokens

PROGRAM = """
#include <stdio.h>
#include "expertmiss_engine.h"
int main(int count, char** words) {
    em_options options = em_default_options();
    options.context = 128;
    em_session* session = em_open(words[1], &options);
    if (session == NULL || em_start(session, 2) != -1) return 1;
    fprintf(stderr, "%s\\n", em_error());
    if (em_open("absent.gguf", NULL) != NULL || em_start(session, 5) != 0) return 2;
    if (em_layers(session) != 4 || em_experts(session) != 32 || em_top_k(session) != 4) return 3;
    int prompt[10], token, at = 0;
    FILE* text = fopen(words[2], "rb");
    while (fread(&token, sizeof token, 1, text) == 1) {
        if (at < 10) prompt[at] = token;
        const float* logits = at < 9 ? NULL : at == 9 ? em_prefill(session, prompt, 10) : em_step(session, token);
        if (at >= 9 && fwrite(logits, sizeof(float), em_vocabulary(session), stdout) == 0) return 4;
        ++at;
    }
    em_traffic traffic = em_read_traffic(session);
    if (em_verify(session) != 5 * 4 || traffic.fetches < 100 || traffic.bytes == 0) return 5;
    if (em_step(session, -1) != NULL || em_reset(session) != 0 || em_start_stock(session) != 0) return 6;
    em_close(session);
    return 0;
}
"""


def test_a_c_program_decodes_the_same(model_file: Callable[..., Path], tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler is not None
    (tmp_path / "main.c").write_text(PROGRAM)
    folder = build_folder()
    subprocess.run(
        [
            compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", f"-I{ROOT / 'src' / 'engine' / 'c_api'}", str(tmp_path / "main.c"),
            "-o", str(tmp_path / "main"), f"-L{folder}", "-lexpertmiss_engine_c", f"-Wl,-rpath,{folder}", f"-Wl,-rpath-link,{llama_root() / 'lib'}",
        ], check=True,
    )  # fmt: skip
    text = tokens(Shape(), 60)
    text.astype(np.int32).tofile(tmp_path / "text.bin")
    done = subprocess.run([tmp_path / "main", model_file(), tmp_path / "text.bin"], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert b"2 resident experts a layer: a token needs 4" in done.stderr
    engine = Engine(model_file(), EngineOptions(context=128))
    engine.start_stock()
    stock = engine.prefill(text[:10]).tobytes() + b"".join(engine.step(token).tobytes() for token in text[10:])
    assert done.stdout == stock
