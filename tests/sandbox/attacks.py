"""Programs that attack a sandbox. Run as a script by the user that is to be tested: prints what became of each as JSON.

``python -I -S attacks.py SRC KIND SECRET_FILE PORT ABSTRACT_SOCKET``; the environment holds MARK. Only the standard library is needed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

MARK = "SANDBOX_TEST_SECRET"


def programs(secret: str, port: str, abstract: str, limits: Any) -> dict[str, str]:
    """Programs by name. What may become of each stands in ``ALLOWED``; none may pass unless it says so there."""
    return {
        "endless loop": "while True: pass",
        "sleep": "import time\ntime.sleep(1000)",
        "deaf to signals": "import signal\nfor s in range(1, 32):\n    if s not in (9, 19): signal.signal(s, signal.SIG_IGN)\nwhile True: pass",
        "memory at once": "x = bytearray(8 << 30)",
        "memory by pieces": "x = []\nwhile True: x.append(bytearray(1 << 20))",
        "fork bomb": "import os\nwhile True: os.fork()",
        "threads": "import threading, time\nfor _ in range(100): threading.Thread(target=time.sleep, args=(100,)).start()",
        "left behind": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(1000)\n    os._exit(0)",
        "read a file": f"open({secret!r}).read()",
        "read the accounts": "open('/etc/passwd').read()",
        "read a home": "import os\nassert os.listdir('/home')",
        "read the project": f"open({__file__!r}).read()",
        "write to the root": "open('/x', 'w')",
        "write to libraries": "open('/usr/lib/x', 'w')",
        "write to the kernel": "open('/proc/sys/kernel/hostname', 'w').write('x')",
        "one big file": "f = open('x', 'wb')\nwhile True: f.write(bytes(1 << 20))",
        "many files": "n = 0\nwhile True:\n    open(str(n), 'wb').write(bytes(1 << 20))\n    n += 1",
        "many open files": "x = []\nwhile True: x.append(open('/dev/null'))",
        "leave a file": "open('kept', 'w').write('x')",
        "find the file": "open('kept').read()",
        "reach this machine": f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)",
        "reach the world": "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 9))",
        "reach an abstract socket": f"import socket\nsocket.socket(socket.AF_UNIX).connect('\\0' + {abstract!r})",
        "environment": f"import os\nassert {MARK!r} in os.environ",
        "environment of others": "import os\nassert any("
        f"{MARK.encode()!r} in open(f'/proc/{{n}}/environ', 'rb').read() for n in os.listdir('/proc') if n.isdigit())",
        "see others": "import os\nassert len([n for n in os.listdir('/proc') if n.isdigit()]) > 8",
        "kill everyone": "import os\nos.kill(-1, 9)",
        "become root": "import os\nassert os.getuid() != 0 or open('/proc/self/status').read().count('CapEff:\\t0000000000000000')\nos.setuid(0)\nos.chown('/usr', 1, 1)",
        "mount": "import ctypes\nassert ctypes.CDLL(None).mount(b'x', b'/work', b'tmpfs', 0, None) == 0",
        "make a device": "import os, stat\nos.mknod('d', 0o600 | stat.S_IFBLK, os.makedev(8, 0))",
        "flood": "import os\nfor fd in range(3, 30):\n    try:\n        for _ in range(99): os.write(fd, bytes(1 << 16))\n    except OSError: pass",
        "say passed": "import os\nfor fd in range(3, 30):\n    try: os.write(fd, b'[\"\", \"passed\", \"\"]\\n')\n    except OSError: pass\nos._exit(0)",
        "leave early": "raise SystemExit(0)",
        "deep recursion": "def f(): f()\nf()",
        "crash": "import ctypes\nctypes.string_at(0)",
    }  # fmt: skip


# What may become of a program; of the others only "error" (an exception) and "failed" (an assert).
ALLOWED = {
    "endless loop": {"timeout", "killed"}, "sleep": {"timeout"}, "deaf to signals": {"timeout", "killed"}, "memory by pieces": {"error", "killed"},
    "fork bomb": {"error", "timeout", "killed"}, "left behind": {"passed"}, "leave a file": {"passed"}, "kill everyone": {"killed", "error"},
    "flood": {"output"}, "say passed": {"killed"}, "crash": {"killed"},
}  # fmt: skip


def main(src: str, kind: str, secret: str, port: str, abstract: str) -> dict[str, Any]:
    """What became of each program, by name: [status, detail, seconds]; and who ran them."""
    sys.path.insert(0, src)
    from expertmiss.sandbox import Limits, Sandbox
    from expertmiss.sandbox.commands import bubblewrap
    from expertmiss.sandbox.probes import probe
    from expertmiss.sandbox.unshare import unshare

    limits = Limits(seconds=3.0)
    command = {"bubblewrap": bubblewrap, "unshare": unshare}[kind](limits)
    assert command is not None, f"{kind} is not installed"
    sandbox = Sandbox(kind, tuple(command), limits)
    found: dict[str, Any] = {"uid": os.geteuid(), "probe": probe(sandbox)}
    for name, program in programs(secret, port, abstract, limits).items():
        clock = time.monotonic()
        outcome = sandbox.run(program)
        found[name] = [outcome.status, outcome.detail, time.monotonic() - clock]
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
