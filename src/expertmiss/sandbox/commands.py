"""The command lines of the ways to run a program: what the programs can see is listed here, once."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from expertmiss.sandbox.run import Limits

WORK = "/work"  # the only folder that can be written to
NOBODY = 2_000_111  # a user id that nobody has: a limit of processes counts all of a user's
SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")  # shared libraries


def interpreter() -> str:
    """The Python that programs run with: the one that this virtual environment was made from."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def visible() -> list[str]:
    """Files and folders that programs can read, by the same path as here: libraries and Python's own files."""
    found = [path for path in SYSTEM if Path(path).exists()]
    paths = [interpreter(), sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    shared = os.path.join(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("INSTSONAME") or "")
    if ".so" in shared and os.path.isfile(shared):
        paths.append(shared)
    for path in paths:
        base = os.path.join(sys.base_prefix, os.path.relpath(path, sys.prefix)) if path.startswith(sys.prefix + os.sep) else path
        if base not in found and not any(base.startswith(folder + os.sep) for folder in found):
            found.append(base)
    return found


def hidden() -> list[str]:
    """Folders within the visible ones that hold other packages."""
    return [path for path in (f"{folder}/site-packages" for folder in visible()) if Path(path).is_dir()]


def _above(paths: Iterable[str]) -> list[str]:
    """The folders that ``paths`` lie in, outermost first."""
    found = {str(folder) for path in paths for folder in Path(path).parents}
    return sorted(found - {"/"})


def python(limits: Limits, *before: str) -> list[str]:
    """The innermost part: limits are set inside, so that the process limit counts the sandbox's processes alone."""
    prlimit = shutil.which("prlimit") or "/usr/bin/prlimit"
    return [*before, *limits.prlimit(prlimit), interpreter(), "-I", "-S", "-c"]


def bubblewrap(limits: Limits) -> list[str] | None:
    """The command line of bubblewrap, None where it is not installed.

    Root's processes are exempt from the process limit even inside a user namespace, so under root the program changes to a user
    that nobody has; an ordinary user gets a user namespace instead.
    """
    program, prlimit, setpriv = (shutil.which(name) for name in ("bwrap", "prlimit", "setpriv"))
    if program is None or prlimit is None or (os.geteuid() == 0 and setpriv is None):
        return None
    command = [program, "--die-with-parent", "--new-session", "--clearenv", "--setenv", "PATH", "/usr/bin", "--hostname", "sandbox"]
    tools = [prlimit]
    if os.geteuid() == 0:
        command += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        before = [
            setpriv or "",
            "--reuid",
            str(NOBODY),
            "--regid",
            str(NOBODY),
            "--clear-groups",
            "--inh-caps=-all",
            "--no-new-privs",
            "--",
        ]
        tools.append(before[0])
    else:
        command += ["--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL"]
        before = []
    for folder in _above([*visible(), *tools]):  # bubblewrap would make them for root alone
        command += ["--perms", "0755", "--dir", folder]
    for path in [*visible(), *tools]:
        command += ["--ro-bind", path, path]
    for path in hidden():
        command += ["--tmpfs", path, "--remount-ro", path]
    command += ["--proc", "/proc", "--dir", "/dev", "--dev-bind", "/dev/null", "/dev/null"]
    command += ["--perms", "0777", "--size", str(limits.file_mib << 20), "--tmpfs", WORK, "--chdir", WORK, "--remount-ro", "/", "--"]
    return command + python(limits, *before)


def weak(limits: Limits) -> list[str] | None:
    """Limits alone: files, network and other processes of this machine stay within reach. None without prlimit."""
    return python(limits) if shutil.which("prlimit") else None
