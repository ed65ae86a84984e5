"""The second way to run a program: util-linux's ``unshare`` and a root folder put together by a few lines of shell."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from expertmiss.sandbox.commands import NOBODY, WORK, hidden, python, visible
from expertmiss.sandbox.run import Limits

# Mounted over inside the new mount name space only, so that nothing is left behind; no Python lies there.
ROOT = "/mnt"
TOOLS = ("unshare", "sh", "mount", "mkdir", "prlimit", "setpriv")
# Arguments: size of the work folder, paths to show, --, paths to hide, --, command. A path is mounted on itself below ROOT, read-only.
SCRIPT = f"""
size=$1; shift
mount -t tmpfs -o mode=0755,size=1m,nosuid,nodev tmpfs {ROOT}
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then mkdir -p "{ROOT}$1"; else mkdir -p "{ROOT}${{1%/*}}"; : > "{ROOT}$1"; fi
  mount --bind "$1" "{ROOT}$1"; mount -o remount,bind,ro "{ROOT}$1"; shift
done; shift
while [ "$1" != -- ]; do mount -t tmpfs -o mode=0755,ro tmpfs "{ROOT}$1"; shift; done; shift
mkdir {ROOT}/proc {ROOT}/dev {ROOT}{WORK}; : > {ROOT}/dev/null
mount --bind /dev/null {ROOT}/dev/null
mount -t proc proc {ROOT}/proc
mount -t tmpfs -o "mode=0777,size=$size,nosuid,nodev" tmpfs {ROOT}{WORK}
mount -o remount,bind,ro {ROOT}
exec unshare --root={ROOT} --wd={WORK} -- "$@"
"""


def unshare(limits: Limits) -> list[str] | None:
    """The command line, None where a tool is missing.

    Root's program changes to a user that nobody has; an ordinary user's is root of an own user namespace without any capability.
    """
    tools = {name: shutil.which(name) for name in TOOLS}
    if None in tools.values() or not Path(ROOT).is_dir():
        return None
    program, setpriv = str(tools["unshare"]), str(tools["setpriv"])
    command = [program, "--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts", "--cgroup", "--propagation", "private"]
    before = [setpriv, "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
    if os.geteuid() == 0:
        before = [setpriv, "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", *before[1:]]
    else:
        command += ["--user", "--map-root-user"]
    shown = [*visible(), str(tools["prlimit"]), setpriv]
    return [
        *command,
        "--",
        str(tools["sh"]),
        "-euc",
        SCRIPT,
        "sh",
        str(limits.file_mib << 20),
        *shown,
        "--",
        *hidden(),
        "--",
        *python(limits, *before, "--"),
    ]
