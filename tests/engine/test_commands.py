"""``expertmiss engine`` as a person uses it: on the built-in model, from the command line."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from expertmiss.cli import main
from tests.engine.builtin import ROOT, builtin_file


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return builtin_file(tmp_path_factory, "Q8_0")


def run(*arguments: object) -> None:
    try:
        assert main(["engine", *(str(argument) for argument in arguments)]) == 0
    except SystemExit as stop:
        raise AssertionError(f"status {stop.code}") from None


def test_ppl_of_stock_and_lossless_is_the_same(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = ROOT / "docs" / "definitions.md"
    results = []
    for options in (["--stock"], ["--resident", "0.1"], ["policy=first_choice", "--resident", "0.1"]):
        run("ppl", path, *options, "--text", text, "--window", 64, "--documents", 2, "--threads", 1, "--store", "mapped")
        results.append(capsys.readouterr().out.splitlines())
    assert results[0][0].startswith("perplexity ") and results[0][0] == results[1][0] != results[2][0]
    assert "stock llama.cpp" in results[0][1]
    assert " 0.0% substituted" in results[1][1] and " 0.0% substituted" not in results[2][1]


def test_chat_answers_and_says_what_it_cost(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    answers = []
    for options in (["--stock"], ["--resident", "0.05"]):
        monkeypatch.setattr("sys.stdin", io.StringIO("def add(a, b):\n\n    return a\n"))
        run("chat", path, *options, "--tokens", 12, "--threads", 1)
        seen = capsys.readouterr()
        answers.append(seen.out)
        assert seen.err.count("tokens/s") == 2
    assert len(answers[0].strip()) > 10 and answers[0] == answers[1]
    assert "% hits" in seen.err and "5 resident" not in seen.err and "13 resident (1 MiB), cold start, scheduled landing" in seen.err


def test_drawn_answers_are_repeatable(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    answers = []
    for seed in (1, 1, 2):
        monkeypatch.setattr("sys.stdin", io.StringIO("The model\n"))
        run("chat", path, "--temperature", 1.0, "--seed", seed, "--tokens", 20, "--threads", 1, "--store", "mapped")
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1] != answers[2]


def test_bench_compares_with_stock(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("bench", path, "--block", 4, "--rounds", 3, "--threads", 1)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[:3]] == ["engine", "stock", "stock, repacked"]
    assert all("[" in line for line in lines[3:5])
    assert lines[-1] == "text: random tokens (a timing, no language)"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--resident", "0.01"], "--resident: 0.01 of 256 experts is C = 3, but K <= C <= E must hold (K = 8)"),
        (["--resident", "1.5"], "--resident: 1.5 is not a share"),
        (["policy=rule_15"], "policy"),
        (["model=x"], "only policy=NAME"),
        (["--calibration", "absent.safetensors"], "absent.safetensors"),
        (["--device", "CUDA9"], "device 'CUDA9': not there"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], sentence: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["engine", "bench", str(path), *arguments])
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert sentence in error and error.startswith("error: ") and error.count("\n") == 1
