"""Every attack fails, under root and under an ordinary user, in both sandboxes; nothing is left behind."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.attacks import ALLOWED, MARK

HERE = Path(__file__).parent
SRC = Path(__file__).parents[2] / "src"
pytestmark = [pytest.mark.system, pytest.mark.slow]
ORDINARY = 3_456_789


def closed_to_others(path: Path) -> Path | None:
    """The outermost folder above ``path`` that an ordinary user cannot enter."""
    return next((folder for folder in reversed(path.parents) if not folder.stat().st_mode & stat.S_IXOTH), None)


def as_ordinary_user(command: list[str]) -> list[str]:
    """``command`` under a user without rights. Where this Python or the sources lie in a folder closed to that user (root's home), a private
    mount name space shows the two alone in an open folder of the same name."""
    dropped = [
        "setpriv",
        "--reuid",
        str(ORDINARY),
        "--regid",
        str(ORDINARY),
        "--clear-groups",
        "--inh-caps=-all",
        "--bounding-set=-all",
        *command,
    ]
    needed = [Path(sys.base_prefix), SRC, HERE]
    closed = sorted({folder for path in needed if (folder := closed_to_others(path))})
    if not closed:
        return dropped
    lines = ["mount -t tmpfs tmpfs /mnt"]
    lines += [f"mkdir /mnt/{i}; mount --bind '{path}' /mnt/{i}" for i, path in enumerate(needed)]
    lines += [f"mount -t tmpfs -o mode=0755 tmpfs '{folder}'" for folder in closed]
    lines += [
        f"mkdir -p '{path}'; mount --bind /mnt/{i} '{path}'; umount /mnt/{i}" for i, path in enumerate(needed) if closed_to_others(path)
    ]
    return [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-euc",
        "\n".join([*lines, "umount -l /mnt", 'exec "$@"']),
        "sh",
        *dropped,
    ]


@pytest.fixture(scope="module")
def secret() -> Iterator[Path]:
    """A file that every user of this machine can read."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    (folder / "secret").write_text("secret")
    yield folder / "secret"
    shutil.rmtree(folder)


@pytest.fixture(scope="module", params=["bubblewrap", "unshare"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=["root", "user"])
def found(request: pytest.FixtureRequest, kind: str, secret: Path) -> dict[str, Any]:
    """What became of each attack."""
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("not root")
    abstract = f"expertmiss-{secrets.token_hex(8)}"
    with socket.socket() as server, socket.socket(socket.AF_UNIX) as local:
        server.bind(("127.0.0.1", 0))
        server.listen()
        local.bind("\0" + abstract)
        local.listen()
        python = os.path.realpath(sys._base_executable)  # type: ignore[attr-defined]
        command = [python, "-I", "-S", str(HERE / "attacks.py"), str(SRC), kind, str(secret), str(server.getsockname()[1]), abstract]
        if request.param == "user" and os.geteuid() == 0:
            command = as_ordinary_user(command)
        answer = subprocess.run(command, capture_output=True, text=True, env={"PATH": os.environ["PATH"], MARK: "x"}, timeout=240)
    assert answer.returncode == 0, answer.stderr
    result: dict[str, Any] = json.loads(answer.stdout)
    assert (result.pop("uid") == 0) == (request.param == "root")
    return result


def test_the_self_test_passes(found: dict[str, Any]) -> None:
    assert found["probe"] == ""


def test_every_attack_fails(found: dict[str, Any]) -> None:
    got = {name: outcome for name, outcome in found.items() if name != "probe"}
    wrong = {name: outcome for name, outcome in got.items() if outcome[0] not in ALLOWED.get(name, {"error", "failed"})}
    assert not wrong and len(got) >= 30
    assert max(seconds for _, _, seconds in got.values()) < 3 + 5  # the limit and a busy machine
    for name in ("memory at once", "memory by pieces"):
        assert got[name][0] == "killed" or got[name][1].startswith("MemoryError")
    for name, reason in (
        ("one big file", "File too large"),
        ("many files", "No space left"),
        ("reach the world", "Network is unreachable"),
    ):
        assert reason in got[name][1], name
    assert "can't start new thread" in got["threads"][1]


def inside() -> set[tuple[str, bytes]]:
    """Every process of any sandbox on this machine, as (id, start time)."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if b"Runs inside the sandbox" in (entry / "cmdline").read_bytes():
                    found.add((entry.name, (entry / "stat").read_bytes().rpartition(b")")[2].split()[19]))
            except OSError:
                continue
    return found


def test_nothing_is_left_behind(found: dict[str, Any]) -> None:
    """No process of any program stays alive, daemons included; those of tests that run at the same time end by their time limit."""
    alive = inside()
    deadline = time.monotonic() + 60
    while alive and time.monotonic() < deadline:
        time.sleep(0.2)
        alive &= inside()
    assert not alive
