"""Runs inside the sandbox as ``python -I -S -c <this file's text>``: one job on standard input, one verdict on standard output.

Only modules that every Python has are imported, and nothing of this package.
"""

import json
import os
import sys


def main() -> None:
    """Execute the program and its tests in one name space; answer with the job's token, a status and a detail."""
    job = json.load(sys.stdin)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    output = os.dup(1)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    scope: dict[str, object] = {"__name__": "program"}
    try:
        exec(compile(job["program"], "program", "exec"), scope)
        for test in job["tests"]:
            exec(compile(test, "test", "exec"), scope)
        status, detail = "passed", ""
    except AssertionError as problem:
        status, detail = "failed", str(problem)
    except BaseException as problem:
        status, detail = "error", f"{type(problem).__name__}: {problem}"
    os.write(output, (json.dumps([job["token"], status, detail[:500]]) + "\n").encode())
    os._exit(0)  # threads and exit handlers of the program have no say


if __name__ == "__main__":
    main()
