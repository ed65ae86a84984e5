"""Running programs, the self-test, and what happens where there is no sandbox."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from expertmiss.sandbox import Limits, Outcome, Sandbox, find_sandbox
from expertmiss.sandbox.commands import bubblewrap, weak
from expertmiss.sandbox.probes import probe

LIMITS = Limits(seconds=2.0)
ADD = "def add(a, b):\n    return a + b\n"


@pytest.fixture
def plain() -> Sandbox:
    """Limits alone: enough for harmless programs."""
    command = weak(LIMITS)
    assert command is not None
    return Sandbox("weak", tuple(command), LIMITS)


@pytest.mark.parametrize(
    ("program", "tests", "expected"),
    [
        (ADD, ("assert add(1, 2) == 3", "assert add(0, 0) == 0"), Outcome("passed")),
        (ADD, ("assert add(1, 2) == 3", "assert add(0, 0) == 1, 'no'"), Outcome("failed", "no")),
        ("def add(a, b) return", (), Outcome("error", "SyntaxError: expected ':' (program, line 1)")),
        ("raise SystemExit(0)", (), Outcome("error", "SystemExit: 0")),
        ("import os\nos._exit(0)", (), Outcome("killed")),
        ("print('[1, 2, 3]')\nimport sys\nsys.stdout.close()", (), Outcome("passed")),
        ("x = 'é" + "x" * 300_000 + "'", ("assert len(x) == 300001",), Outcome("passed")),
    ],
)
def test_what_becomes_of_programs(plain: Sandbox, program: str, tests: tuple[str, ...], expected: Outcome) -> None:
    assert plain.run(program, tests) == expected


def test_time_and_output_are_limited(plain: Sandbox) -> None:
    clock = time.monotonic()
    assert plain.run("import time\ntime.sleep(60)").status == "timeout"
    assert time.monotonic() - clock < 10
    assert plain.run("import os\nfor _ in range(99): os.write(4, bytes(1 << 16))").status == "output"


def test_limits_alone_do_not_pass_the_self_test(plain: Sandbox) -> None:
    assert probe(plain) != ""


def test_no_sandbox_is_an_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "prlimit").symlink_to("/usr/bin/prlimit")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_sandbox(LIMITS) == (None, "bubblewrap is not installed; unshare is not installed")
    found, reason = find_sandbox(LIMITS, allow_weak=True)
    assert found is not None and found.kind == "weak"
    assert reason == "weak: limits of time and memory only (bubblewrap is not installed; unshare is not installed)"
    assert found.run(ADD, ["assert add(2, 2) == 4"]).passed


def without(command: list[str], *options: str) -> list[str]:
    return [word for word in command if word not in options]


def with_options(command: list[str], *options: str) -> list[str]:
    at = command.index("--remount-ro", command.index("--chdir"))
    return [*command[:at], *options, *command[at:]]


# A defect each, and what the self-test says about it.
DEFECTS = {
    "the network can be reached": lambda c: with_options(without(c, "--unshare-net"), "--share-net") if os.geteuid() else without(c, "--unshare-net"),
    "files of this machine can be read": lambda c: with_options(c, "--ro-bind", "/tmp", "/tmp"),
    "the environment can be read": lambda c: with_options(c, "--setenv", "SECRET", "x"),
    "processes outside can be seen": lambda c: with_options(c, "--ro-bind", "/proc", "/proc"),
    "files outside the folder can be written": lambda c: with_options(c, "--perms", "0777", "--tmpfs", "/tmp"),
    "memory is not limited": lambda c: [word for word in c if not word.startswith("--as=")],
    "processes are not limited": lambda c: [word for word in c if not word.startswith("--nproc=")],
    "files are not limited": lambda c: [word for word in with_options(c, "--bind", "/tmp", "/work") if not word.startswith("--fsize=")],
    "open files are not limited": lambda c: [word for word in c if not word.startswith("--nofile=")],
    "a correct program does not pass": lambda c: [*c[:-4], "/nowhere", *c[-3:]],
}  # fmt: skip


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize("message", DEFECTS)
def test_the_self_test_notices_a_defect(message: str, tmp_path: Path) -> None:
    command = bubblewrap(LIMITS)
    assert command is not None, "bubblewrap is not installed"
    assert probe(Sandbox("bubblewrap", tuple(command), LIMITS)) == ""
    assert probe(Sandbox("bubblewrap", tuple(DEFECTS[message](command)), LIMITS)).startswith(message)
