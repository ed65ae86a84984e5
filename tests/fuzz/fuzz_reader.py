"""Coverage-guided fuzzing of one reader: ``python fuzz_reader.py trace|run SCRATCH CORPUS [libFuzzer options]``.

Every input becomes a file in SCRATCH. The reader may accept it or raise a UserError of one printable line; anything else is a crash.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

import atheris

# An editable install imports through loaders of its own, which atheris cannot instrument; Python's own finders are classes.
sys.meta_path[:] = [finder for finder in sys.meta_path if isinstance(finder, type)]
with atheris.instrument_imports(include=["expertmiss"]):
    from expertmiss.errors import UserError
    from expertmiss.traces.format import Trace
    from expertmiss.tracking.runs import read_runs

VALUE = re.compile(rb'-?\d+(?:\.\d+)?|true|false|null|\\?"[^"\\]*\\?"')
STRANGE = (
    b"null", b"true", b"0", b"-1", b"1.5", b"NaN", b"1e999", b"7" * 30, b"7" * 400, b"7" * 5000, b"[]", b"{}", b"[" * 5000, b"[0" + b",0" * 70 + b"]",
    b'""', b'"\\n"', b'"\\ud800"', b'"' + b"a" * 300 + b'"',
)  # fmt: skip


def mutate_text(text: bytes, rng: random.Random) -> bytes:
    """JSON text with some bytes changed, or one value or name of it replaced by a strange one."""
    places = list(VALUE.finditer(text))
    if not places or rng.random() < 0.5:
        return bytes(atheris.Mutate(text, len(text) + 64))
    place = rng.choice(places)
    return text[: place.start()] + rng.choice(STRANGE) + text[place.end() :]


def mutate_trace(content: bytes, limit: int, seed: int) -> bytes:
    """Mostly another header with its length put right: changed bytes alone would almost never pass the first check."""
    rng = random.Random(seed)
    length = int.from_bytes(content[:8], "little")
    if length > len(content) - 8 or rng.random() < 0.25:
        return bytes(atheris.Mutate(content, limit))
    header = mutate_text(content[8 : 8 + length], rng)
    return (len(header).to_bytes(8, "little") + header + content[8 + length :])[:limit]


def mutate_run(content: bytes, limit: int, seed: int) -> bytes:
    """Another JSON text."""
    return mutate_text(content, random.Random(seed))[:limit]


def target(path: Path, read: Callable[[], object]) -> Callable[[bytes], None]:
    """What libFuzzer calls: write the bytes to ``path``, then ``read``."""
    path.parent.mkdir(parents=True, exist_ok=True)

    def once(content: bytes) -> None:
        path.write_bytes(content)
        try:
            read()
        except UserError as problem:
            assert "\n" not in str(problem), "an error message of several lines"
            str(problem).encode()  # UnicodeEncodeError: a message that cannot be printed

    return once


def main() -> None:
    """Runs until libFuzzer's options say stop; exits with another status than 0 at the first crash."""
    reader, scratch = sys.argv[1], Path(sys.argv[2])
    arguments = [sys.argv[0], *sys.argv[3:]]
    if reader == "trace":
        path = scratch / "fuzzed.safetensors"
        atheris.Setup(arguments, target(path, lambda: Trace.open(path, check_values=True)), custom_mutator=mutate_trace)
    else:
        results = scratch / "results"
        once = target(results / "default/stage/run.json", lambda: read_runs(results, results / "mlflow"))
        atheris.Setup(arguments, once, custom_mutator=mutate_run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
