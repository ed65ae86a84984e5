"""One program, run once under limits, and what became of it."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import secrets
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from expertmiss.sandbox import driver

DRIVER = inspect.getsource(driver)


@dataclass(frozen=True)
class Limits:
    """What a program may use.

    Attributes:
        seconds: wall time of the whole run; processor time of each process is held to the next whole second.
        memory_mib: address space of each process.
        processes: processes and threads at once, so that all together hold at most ``processes * memory_mib``.
        file_mib: size of each file, and of the folder that files can be written to.
        open_files: open files of each process.
        output_bytes: output that is read before the run is stopped.
    """

    seconds: float = 5.0
    memory_mib: int = 512
    processes: int = 4
    file_mib: int = 8
    open_files: int = 64
    output_bytes: int = 65_536

    def prlimit(self, program: str) -> list[str]:
        """The command line that sets them for the command behind it."""
        return [
            program, f"--as={self.memory_mib << 20}", f"--cpu={int(self.seconds) + 1}", f"--nproc={self.processes}",
            f"--fsize={self.file_mib << 20}", f"--nofile={self.open_files}", "--core=0", "--",
        ]  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What became of a program: ``passed``, ``failed`` (a test), ``error`` (another exception), ``timeout``, ``output`` (too much of it)
    or ``killed`` (it ended without a verdict); ``detail`` in a line."""

    status: str
    detail: str = ""

    @property
    def passed(self) -> bool:
        """Whether every test passed."""
        return self.status == "passed"


@dataclass(frozen=True)
class Sandbox:
    """A way to run programs.

    Attributes:
        kind: ``bubblewrap``, ``unshare`` or ``weak`` (limits only).
        command: everything before the driver's text on the command line.
        limits: what a program may use.
        folder: working directory of the outermost process.
    """

    kind: str
    command: tuple[str, ...]
    limits: Limits
    folder: str = "/"

    def run(self, program: str, tests: Sequence[str] = ()) -> Outcome:
        """Execute ``program``, then each of ``tests`` in its name space."""
        token = secrets.token_hex(16)
        job = json.dumps({"program": program, "tests": list(tests), "token": token}).encode()
        process = subprocess.Popen(
            [*self.command, DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=self.folder, env={"PATH": os.defpath}, start_new_session=True,
        )  # fmt: skip
        try:
            output, errors, stopped = self._talk(process, job)
        finally:
            _kill(process)
        if stopped:
            return Outcome(stopped)
        for line in output.decode(errors="replace").splitlines():
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, list) and len(found) == 3 and found[0] == token:
                return Outcome(str(found[1]), str(found[2]))
        return Outcome("killed", errors.decode(errors="replace").strip()[-300:])

    def _talk(self, process: subprocess.Popen[bytes], job: bytes) -> tuple[bytes, bytes, str]:
        """Output, error output and why the run was stopped ('' if it was not): writes the job while reading, never more than allowed."""
        assert process.stdin and process.stdout and process.stderr
        end = time.monotonic() + self.limits.seconds
        found: dict[int, bytearray] = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
        os.set_blocking(process.stdin.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdin, selectors.EVENT_WRITE)
            for stream in (process.stdout, process.stderr):
                selector.register(stream, selectors.EVENT_READ)
            stopped = ""
            while selector.get_map() and not stopped:
                left = end - time.monotonic()
                if left <= 0:
                    stopped = "timeout"
                for key, _ in selector.select(max(0.0, left)):
                    if key.fileobj is process.stdin:
                        try:
                            job = job[os.write(key.fd, job) :]
                        except BlockingIOError:
                            continue
                        except BrokenPipeError:
                            job = b""
                        if not job:
                            selector.unregister(process.stdin)
                            process.stdin.close()
                        continue
                    data = os.read(key.fd, 65_536)
                    found[key.fd] += data
                    if not data:
                        selector.unregister(key.fileobj)
                    if len(found[key.fd]) > self.limits.output_bytes:
                        stopped = "output"
        output, errors = found.values()
        return bytes(output), bytes(errors), stopped


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the run: its process group; the sandbox's own init takes everything inside with it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
