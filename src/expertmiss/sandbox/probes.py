"""The self-test of a sandbox: harmless programs that must pass, harmful ones that must not get through."""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
from dataclasses import replace
from pathlib import Path

from expertmiss.sandbox.run import Sandbox

MARK = "EXPERTMISS_SANDBOX_PROBE"


def probe(sandbox: Sandbox) -> str:
    """What the sandbox lets through, in a few words; empty when it holds. Takes about two seconds."""
    quick = replace(sandbox, limits=replace(sandbox.limits, seconds=min(2.0, sandbox.limits.seconds)))
    first = sandbox.run("import json, math, re, collections\ndef f(x):\n    return x + 1", ["assert f(1) == 2"])
    if not first.passed:
        return f"a correct program does not pass ({first.status} {first.detail})".strip()
    if sandbox.run("def f(x):\n    return x", ["assert f(1) == 2"]).status != "failed":
        return "a wrong program does not fail"
    if quick.run("while True: pass").status not in ("timeout", "killed"):
        return "an endless loop is not stopped"
    for what, program in attacks(sandbox).items():
        outcome = quick.run(program)
        if outcome.passed:
            return what
    return _reaches_outside(quick)


def attacks(sandbox: Sandbox) -> dict[str, str]:
    """Programs that end without an exception only where the sandbox does not hold, by what they then show."""
    limits = sandbox.limits
    return {
        "memory is not limited": f"x = bytearray({(limits.memory_mib + 64) << 20})",
        "processes are not limited": f"import os, time\nfor _ in range({limits.processes + 4}):\n    if os.fork() == 0:\n        time.sleep(1)\n        os._exit(0)",
        "files are not limited": f"open('big', 'wb').write(bytes({(limits.file_mib + 1) << 20}))",
        "open files are not limited": f"kept = [open('/dev/null') for _ in range({limits.open_files + 1})]",
        "files outside the folder can be written": "import os\nfor folder in ('/', '/tmp', '/usr/lib', '/proc', '/dev', '/home', '/root'):\n"
        "    try:\n        open(folder + '/expertmiss_probe', 'w')\n        break\n    except OSError:\n        pass\nelse:\n    raise OSError",
    }


def _reaches_outside(sandbox: Sandbox) -> str:
    """Whether a file, a variable, a process or a socket of this machine can be reached."""
    secret = secrets.token_hex(8)
    if sandbox.run("import os\nassert len([n for n in os.listdir('/proc') if n.isdigit()]) > 8").passed:
        return "processes outside can be seen"
    if os.environ and sandbox.run("import os\nassert set(os.environ) - {'PATH', 'PWD', 'LC_CTYPE'}").passed:
        return "the environment can be read"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "secret")
        path.write_text(secret, encoding="utf-8")
        os.chmod(folder, 0o755)
        if sandbox.run(f"assert open({str(path)!r}).read() == {secret!r}").passed:
            return "files of this machine can be read"
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        if sandbox.run(f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)").passed:
            return "the network can be reached"
    return ""
