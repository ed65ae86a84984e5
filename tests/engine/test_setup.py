"""Without the extra, or with a stale build, the engine says what to do in one line, and nothing else needs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from expertmiss.engine import build as compiling
from expertmiss.engine import library as module
from expertmiss.errors import UserError

load = module.library.__wrapped__  # past the cache: a loaded library stays loaded


def test_without_llama_cpp_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="needs llama-cpp-python, which is not installed; run `make setup-engine`"):
        load()


@pytest.mark.parametrize(
    ("stamp", "sentence"),
    [(None, "the engine is not compiled"), ({"sources": "old", "module": "x.so"}, "older than src/engine or src/core"), ({"module": "absent.so"}, "cannot be loaded")],
)  # fmt: skip
def test_no_or_another_build(stamp: dict[str, str] | None, sentence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "llama_root", lambda: tmp_path)
    monkeypatch.setattr(module, "build_folder", lambda: tmp_path)
    if stamp is not None:
        (tmp_path / "build.json").write_text(json.dumps({"sources": module.engine_sources_hash(), **stamp}))
    with pytest.raises(UserError, match=sentence):
        load()


def test_a_backend_that_llama_cpp_has_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before anything is compiled; with it, the build goes on (here: to a compiler that is not there)."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libggml-cpu.so").touch()
    monkeypatch.setattr(compiling, "llama_root", lambda: tmp_path)
    monkeypatch.setattr(compiling, "build_folder", lambda: tmp_path / "build")
    with pytest.raises(UserError, match="llama-cpp-python was built without cuda; run `make setup-engine BACKEND=cuda`"):
        compiling.build("cuda")
    assert not (tmp_path / "build").exists()
    (tmp_path / "lib" / "libggml-cuda.so").touch()
    monkeypatch.setattr(compiling.shutil, "which", lambda *_, **__: None)
    for backend in ("cpu", "cuda"):
        with pytest.raises(UserError, match="needs cmake, which is not installed"):
            compiling.build(backend)


def test_the_command_line_does_without_it() -> None:
    """Neither llama-cpp-python nor gguf is imported before an engine command runs."""
    program = (
        "import sys; sys.modules['llama_cpp'] = sys.modules['gguf'] = None; import expertmiss.cli; "
        "sys.argv = ['expertmiss', 'engine', '--help']; expertmiss.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0 and "chat" in done.stdout, done.stderr
