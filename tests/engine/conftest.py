"""The engine's tests need the [engine] extra: ``make test`` installs it and sets EXPERTMISS_REQUIRE_ENGINE, so that nothing is skipped there."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from expertmiss.errors import UserError
from tests.engine import NEEDS_LIBRARY

REQUIRED = bool(os.environ.get("EXPERTMISS_REQUIRE_ENGINE"))
# By hand, without the extra: these modules cannot even be imported.
collect_ignore = [] if REQUIRED or importlib.util.find_spec("gguf") else [f"{name}.py" for name in NEEDS_LIBRARY]


@pytest.fixture(autouse=True)
def compiled(request: pytest.FixtureRequest) -> None:
    """Skips by hand-run pytest where the engine is not compiled; fails in ``make test``."""
    if request.module.__name__.rpartition(".")[2] not in NEEDS_LIBRARY:
        return
    from expertmiss.engine.library import library

    try:
        library()
    except UserError as problem:
        if REQUIRED:
            raise
        pytest.skip(str(problem))


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Random-weight models by (kind, type), each made once."""
    from tests.engine.random_gguf import Shape, make

    made: dict[tuple[str, str], Path] = {}
    folder = tmp_path_factory.mktemp("models")

    def get(kind: str = "qwen3moe", expert_type: str = "F32") -> Path:
        key = (kind, expert_type)
        if key not in made:
            made[key] = make(folder / f"{kind}-{expert_type}.gguf", Shape(kind=kind), expert_type)
        return made[key]

    return get
