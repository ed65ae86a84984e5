"""A private copy of the project that the workflow can be run in, edited and killed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COPIED = ("Snakefile", "CMakeLists.txt", "pyproject.toml", "config", "prereg", "profiles", "workflow", "src", "models")
# An editable install resolves `import expertmiss` to the original checkout; in the copy the copy must win.
SITE = "import sys\nsys.meta_path[:] = [finder for finder in sys.meta_path if 'ScikitBuild' not in type(finder).__name__]\n"


class Project:
    """A checkout in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PYTHONPATH": f"{folder / 'site'}:{folder / 'src'}", "OMP_NUM_THREADS": "1"}

    def command(self, *arguments: str) -> list[str]:
        options = ["--config", "experiment=tiny", 'overrides=["corpus=local","corpus.folder=texts"]']
        return [sys.executable, "-m", "snakemake", "--cores", "2", *arguments, *([] if "--config" in arguments else options)]

    def snakemake(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run snakemake in the copy and wait for it."""
        return subprocess.run(self.command(*arguments), cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=500)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start snakemake in a session of its own, so that everything it started can be killed at once."""
        with open(self.folder / "started.log", "w") as log:
            return subprocess.Popen(
                self.command(*arguments), cwd=self.folder, env=self.environment, stdout=log, stderr=log, text=True, start_new_session=True
            )

    def planned(self) -> list[str]:
        """Names of the rules that a run would execute, sorted."""
        answer = self.snakemake("--dry-run", "--quiet", "host")
        assert answer.returncode == 0, answer.stderr
        lines = (answer.stdout + answer.stderr).splitlines()
        return sorted({line.split()[1].rstrip(":") for line in lines if line.startswith(("rule ", "localrule "))} - {"all"})

    def results(self) -> Path:
        return self.folder / "results" / "tiny"


def write_texts(folder: Path, documents: int = 14) -> None:
    """Two domains of plain text, long enough for one document of tokens each."""
    sentences = {
        "first": "the cache holds what the router asked for last and a miss has to wait or another expert stands in for it today",
        "second": "rain fell over grey hills while nine ships left the old harbour under slow clouds toward islands nobody aboard had seen",
    }
    for domain, sentence in sentences.items():
        words = re.findall(r"\w+", sentence)
        (folder / domain).mkdir(parents=True)
        for number in range(documents):
            text = " ".join(
                words[(index * (number + 3) + index // 7) % len(words)] + (f" {index}" if index % 11 == number % 11 else "")
                for index in range(1500)
            )
            (folder / domain / f"{number:02d}.txt").write_text(text)


def copy_project(folder: Path) -> Project:
    folder.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / name)
    import expertmiss._core as compiled

    assert compiled.__file__ is not None
    target = folder / "src" / "expertmiss" / Path(compiled.__file__).name
    if not target.exists():
        shutil.copy2(compiled.__file__, target)
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(SITE)
    write_texts(folder / "texts")
    return Project(folder)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy in which the tiny experiment has run once. Tests leave its files as they found them."""
    project = copy_project(tmp_path_factory.mktemp("finished") / "project")
    answer = project.snakemake()
    assert answer.returncode == 0, answer.stdout[-3000:] + answer.stderr[-6000:]
    return project


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[], Project]:
    """Make a copy in which nothing has run."""
    return lambda: copy_project(tmp_path / "project")
