"""Source packages of the text domains: pure-Python wheels pinned by version and SHA-256, downloaded by pip and read as zip files.

Nothing is installed or imported. A list is a file in pip's hash-pinned requirements format; in ``evaluation.txt`` the comment
behind each line names the split that the package belongs to, for good::

    toolz==1.1.0 --hash=sha256:15cc...  # exploratory
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expertmiss.errors import UserError, suggest
from expertmiss.files import sha256_file
from expertmiss.progress import Progress

SPLITS = ("train", "calibration", "pilot", "exploratory", "confirmatory", "generation")
# Near-duplicates are dropped from the later split of this order, so a split's text depends on the splits before it alone: a run that
# needs no confirmatory or training text need not download any.
ORDER = ("exploratory", "pilot", "calibration", "confirmatory", "generation", "train")
_BATCH = 16  # wheels per call of pip, which keeps nothing of a call that was cut off
_LINE = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+) +--hash=sha256:(?P<sha256>[0-9a-f]{64}) +# (?P<split>\w+)")


@dataclass(frozen=True)
class Package:
    """One pinned wheel and the split that all of its text belongs to."""

    name: str
    version: str
    sha256: str
    split: str

    @property
    def source(self) -> str:
        """``name==version``, the ``source`` of every document taken from this wheel."""
        return f"{self.name}=={self.version}"

    @property
    def requirement(self) -> str:
        """The package's line in pip's requirements format, without the comment."""
        return f"{self.source} --hash=sha256:{self.sha256}"


def order_needed(splits: Sequence[str]) -> tuple[str, ...]:
    """The splits to go through, in order, so that ``splits`` come out as they do in a full build."""
    return ORDER[: max(ORDER.index(split) for split in splits) + 1]


def package_lists(corpus: Mapping[str, Any], splits: Sequence[str]) -> list[Path]:
    """The list files that a build of ``splits`` reads."""
    names = ["evaluation.txt", "train.txt"] if "train" in splits else ["evaluation.txt"]
    return [Path(corpus["packages"]) / name for name in names]


def select_packages(corpus: Mapping[str, Any], splits: Sequence[str]) -> list[Package]:
    """The packages of every split to go through, in the order of splits, then names."""
    order = order_needed(splits)
    packages = [package for path in package_lists(corpus, splits) for package in read_packages(path) if package.split in order]
    return sorted(packages, key=lambda package: (order.index(package.split), package.name))


def read_packages(path: Path | str) -> list[Package]:
    """Read one package list, sorted by name.

    Raises:
        UserError: no such file, a line in another form, an unknown split, or a package listed twice.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such package list; restore it or correct the corpus option that names it")
    packages: dict[str, Package] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise UserError(f"{path}:{number}: write 'name==version --hash=sha256:<64 hex digits>  # <split>'")
        package = Package(**match.groupdict())
        if package.split not in SPLITS:
            raise UserError(f"{path}:{number}: unknown split '{package.split}'; {suggest(package.split, SPLITS)}")
        if package.name in packages:
            raise UserError(f"{path}:{number}: package '{package.name}' is listed twice; keep one line")
        packages[package.name] = package
    return [packages[name] for name in sorted(packages)]


def find_wheel(package: Package, cache: Path) -> Path | None:
    """The package's wheel in ``cache`` if it is there and its SHA-256 is the pinned one, else ``None``."""
    stem = re.sub(r"[-_.]+", "_", package.name).lower()
    for path in sorted(cache.glob(f"*-{package.version}-*none-any.whl")):
        if re.sub(r"[-_.]+", "_", path.name.split("-")[0]).lower() == stem and sha256_file(path) == package.sha256:
            return path
    return None


def fetch_wheels(packages: Sequence[Package], cache: Path | str, journal: Path | None = None) -> dict[str, Path]:
    """Return ``{package name: wheel}``, downloading by pip what ``cache`` does not hold yet; a cut-off run resumes.

    Raises:
        UserError: a wheel is missing and cannot be downloaded (names the first missing package and the file to place where).
    """
    cache = Path(cache)
    cache.mkdir(parents=True, exist_ok=True)
    wheels = {package.name: find_wheel(package, cache) for package in packages}
    missing = [package for package in packages if wheels[package.name] is None]
    if missing:
        with Progress(len(missing), "downloading packages", "package", journal) as progress:
            for first in range(0, len(missing), _BATCH):
                batch = missing[first : first + _BATCH]
                if _download(batch, cache):  # one at a time, to know which package is to blame
                    for package in batch:
                        _fetch_one(package, cache)
                wheels.update({package.name: find_wheel(package, cache) or _fetch_one(package, cache) for package in batch})
                progress.update(len(batch))
    return {name: wheel for name, wheel in wheels.items() if wheel is not None}


def _fetch_one(package: Package, cache: Path) -> Path:
    problem = "" if find_wheel(package, cache) else _download([package], cache)
    wheel = find_wheel(package, cache)
    if wheel is None:
        raise UserError(
            f"package {package.source} is not in {cache} and cannot be downloaded ({problem or 'other bytes than pinned'}); "
            f"place its py3-none-any wheel with SHA-256 {package.sha256} there, or run again with network access"
        )
    return wheel


def _download(packages: Sequence[Package], cache: Path) -> str:
    """Download hash-pinned pure-Python wheels into ``cache``; return pip's first error line, or ``""``."""
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder, "requirements.txt")
        requirements.write_text("".join(f"{package.requirement}\n" for package in packages), encoding="utf-8")
        # --platform any with --abi none admits py3-none-any wheels alone, whatever this machine is.
        kind = ["--no-deps", "--only-binary=:all:", "--platform=any", "--implementation=py", "--abi=none", "--python-version=3.11"]
        quiet = ["--quiet", "--disable-pip-version-check", "--retries=2", "--timeout=20"]
        files = ["--require-hashes", f"--dest={cache}", f"--requirement={requirements}"]
        done = subprocess.run([sys.executable, "-m", "pip", "download", *kind, *quiet, *files], capture_output=True, text=True, check=False)
    errors = [line.strip() for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.strip().splitlines()[-1:]
    return errors[0] if done.returncode and errors else ""
