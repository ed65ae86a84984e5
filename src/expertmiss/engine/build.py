"""Compiling the engine against the installed llama-cpp-python."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

from expertmiss.engine.library import build_folder, engine_sources_hash, llama_root
from expertmiss.errors import UserError
from expertmiss.files import write_json
from expertmiss.paths import project_root

# The library that llama-cpp-python has when it was built for a backend; every build has the processor's.
BACKENDS = {"cpu": "libggml-cpu", "cuda": "libggml-cuda"}


def build(backend: str = "cpu") -> Path:
    """Compile ``src/engine`` into ``build/engine`` and return the module's path.

    The engine calls every backend through ggml's public functions, so its own code is the same for all; ``backend`` is the one that the
    installed llama-cpp-python must have.

    Raises:
        UserError: llama-cpp-python, its backend or a compiler is missing, or the compiler fails.
    """
    root, out = llama_root(), build_folder()
    if not list((root / "lib").glob(f"{BACKENDS[backend]}.*")):
        raise UserError(f"llama-cpp-python was built without {backend}; run `make setup-engine BACKEND={backend}`")
    sources = engine_sources_hash()
    nanobind = subprocess.run([sys.executable, "-m", "nanobind", "--cmake_dir"], capture_output=True, text=True)
    if nanobind.returncode != 0:
        raise UserError("the engine's build needs nanobind, which is not installed; run `make setup-engine`")
    cmake = _tool("cmake")
    out.mkdir(parents=True, exist_ok=True)
    (out / "build.json").unlink(missing_ok=True)
    configure = [
        cmake, "-S", str(project_root() / "src" / "engine"), "-B", str(out), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={_tool('ninja')}",
        f"-DLLAMA_ROOT={root}", f"-DPython_EXECUTABLE={sys.executable}", f"-Dnanobind_DIR={nanobind.stdout.strip()}",
        "-DCMAKE_BUILD_TYPE=Release",
    ]  # fmt: skip
    with open(out / "build.log", "w", encoding="utf-8") as log:
        for command in (configure, [cmake, "--build", str(out), "--target", "_engine", "expertmiss_engine_c"]):
            if subprocess.run(command, stdout=log, stderr=subprocess.STDOUT).returncode != 0:
                raise UserError(f"the engine cannot be compiled; the compiler's messages are in {out / 'build.log'}")
    module = max(out.glob("_engine*.so"), key=lambda path: path.stat().st_mtime)
    write_json(
        out / "build.json",
        {"module": module.name, "sources": sources, "llama_cpp_python": importlib.metadata.version("llama_cpp_python")},
    )
    return module


def _tool(name: str) -> str:
    """A build tool, from the environment of this interpreter first."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise UserError(f"the engine's build needs {name}, which is not installed; run `make setup-engine`")
    return found
