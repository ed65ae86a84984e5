"""Training on synthetic tokens: it learns, survives kills, and exports what transformers loads."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, AutoTokenizer

from expertmiss.errors import UserError
from expertmiss.models.export import load_fast
from expertmiss.models.options import TrainOptions, options_from
from expertmiss.models.train import Trainer, decay_steps, train
from expertmiss.models.train_data import TokenFiles
from expertmiss.models.train_state import Position

TINY = {
    "shape": {
        "vocab_size": 64, "hidden_size": 32, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 16, "experts": 8, "experts_per_token": 2,
        "expert_size": 32, "max_positions": 64,
    },
    "batch": 4, "sequence": 32, "warmup_steps": 4, "evaluate_every": 1000, "evaluate_sequences": 4, "checkpoint_minutes": 0.0,
    "router_smoothness": 0.01, "z_loss": 1e-4, "weights": {"code": 0.7}, "rest_weight": 0.3,
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two domains: ``code`` counts upwards from a random token, ``prose`` is noise over half the vocabulary."""
    folder = tmp_path_factory.mktemp("data")
    draw = np.random.default_rng(0)
    for suffix, documents in ((".bin", 200), (".val.bin", 20)):
        counting = [np.concatenate([[0], 1 + (draw.integers(63) + np.arange(31)) % 63]) for _ in range(documents)]
        np.concatenate(counting).astype(np.uint16).tofile(folder / f"code{suffix}")
        draw.integers(1, 32, documents * 32).astype(np.uint16).tofile(folder / f"prose{suffix}")
    (folder / "tokenizer").mkdir()
    Tokenizer(models.WordLevel({"<|endoftext|>": 0, "a": 1}, unk_token="a")).save(str(folder / "tokenizer" / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>"}
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def masters(trainer: Trainer) -> torch.Tensor:
    return torch.cat(trainer.weights.masters)


def test_learns_and_exports_what_transformers_loads(data: Path, tmp_path: Path) -> None:
    options = options_from(TINY)
    before = Trainer(options, data, tmp_path / "none").evaluate(10)
    train(options, data, tmp_path / "run", tmp_path / "model", trunk_steps=120)
    training = json.loads((tmp_path / "model" / "training.json").read_text())
    assert training["steps"] == {"trunk": 120, "decay": 30, "total": 150}
    assert training["tokens"] == 150 * 4 * 32
    assert training["held_out_nll"]["code"] < before["code"] - 1
    assert training["held_out_nll"]["prose"] > np.log(31) - 0.1

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    assert model.config.model_type == "qwen3_moe"
    assert AutoTokenizer.from_pretrained(tmp_path / "model").eos_token_id == model.config.eos_token_id == 0
    tokens = TokenFiles(data, {}, 1.0, 0.0, 64, 32).held_out_windows("code", 100)
    fast = load_fast(tmp_path / "model")
    torch.testing.assert_close(fast(tokens)[0], model(tokens).logits, atol=1e-4, rtol=0)
    with torch.no_grad():
        assert float(fast.loss(tokens, None)[0]) == pytest.approx(training["held_out_nll"]["code"], abs=1e-4)


def test_killed_and_resumed_equals_uninterrupted(data: Path, tmp_path: Path) -> None:
    """kill -9 in the trunk and in the decay; a checkpoint after every step is the hardest case for atomic writing."""
    steps = 60
    whole = Trainer(options_from(TINY), data, tmp_path / "whole")
    (tmp_path / "whole").mkdir()
    whole.extend_trunk(steps)
    whole.decay(decay_steps(steps, 0.2))

    work = tmp_path / "killed"
    command = [
        sys.executable, "-m", "expertmiss.models.train", "--data", str(data), "--work", str(work), "--trunk-steps", str(steps),
        "--out", str(tmp_path / "model"), "--cfg", json.dumps(TINY),
    ]  # fmt: skip
    for awaited in ("trunk.pt", "decay.pt"):
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
            while process.poll() is None and not (work / awaited).exists():
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL, "the run ended before it could be killed"
    assert not (tmp_path / "model" / "training.json").exists()
    resumed = Trainer(options_from(TINY), data, work)
    resumed.extend_trunk(steps)
    resumed.decay(decay_steps(steps, 0.2))
    assert resumed.position.step == whole.position.step == 75
    torch.testing.assert_close(masters(resumed), masters(whole), atol=1e-6, rtol=0)


def test_trunk_goes_on_after_a_decay_as_if_there_had_been_none(data: Path, tmp_path: Path) -> None:
    options = options_from(TINY)
    whole = Trainer(options, data, tmp_path / "a")
    whole.extend_trunk(12)
    branched = Trainer(options, data, tmp_path / "b")
    branched.extend_trunk(8)
    branched.decay(3)
    again = Trainer(options, data, tmp_path / "b")
    again.extend_trunk(12)
    torch.testing.assert_close(masters(again), masters(whole), atol=1e-6, rtol=0)


def test_termination_signal_leaves_a_checkpoint_of_the_step_under_way(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(options_from({**TINY, "checkpoint_minutes": 60.0}), data, tmp_path)
    step = trainer._step

    def interrupted() -> dict[str, object]:
        notes = step()
        if notes["step"] == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return notes

    monkeypatch.setattr(trainer, "_step", interrupted)
    trainer.extend_trunk(50)
    assert trainer.stopped
    again = Trainer(options_from(TINY), data, tmp_path)
    again.extend_trunk(3)
    assert again.position.step == 3
    assert torch.equal(masters(again), masters(trainer))


def test_schedule_warms_up_holds_and_decays_to_zero() -> None:
    options = TrainOptions(learning_rate=1.0, warmup_steps=10)
    assert [Position(step).rate(options) for step in (0, 4, 9, 500)] == [0.1, 0.5, 1.0, 1.0]
    branch = [Position(step, branch=100, decay_steps=20).rate(options) for step in (100, 110, 120)]
    assert branch == [1.0, 0.5, 0.0]
    assert decay_steps(80, 0.2) == 20


def test_batches_depend_on_seed_and_step_alone(data: Path) -> None:
    files = TokenFiles(data, {"code": 0.7}, 0.3, 0.5, 64, 32)
    first, domains = files.batch(1, 5, 200)
    assert torch.equal(first, TokenFiles(data, {"code": 0.7}, 0.3, 0.5, 64, 32).batch(1, 5, 200)[0])
    assert not torch.equal(first, files.batch(1, 6, 200)[0]) and not torch.equal(first, files.batch(2, 5, 200)[0])
    assert first.shape == (200, 33)
    assert np.mean(domains == files.domains.index("code")) == pytest.approx(0.7, abs=0.1)
    aligned = (first[domains == files.domains.index("code"), 0] == 0).float().mean()
    assert float(aligned) == pytest.approx(0.5 + 0.5 / 32, abs=0.15)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"learning_rte": 1}, "train_builtin.learning_rte: no such option; did you mean 'learning_rate'"),
        ({"shape": {"expert": 3}}, "train_builtin.shape.expert: no such option"),
        ({"shape": {"heads": 3, "kv_heads": 2}}, "kv_heads = 2 does not divide"),
        ({"shape": {"experts": 4, "experts_per_token": 5}}, "experts_per_token = 5 is outside"),
        ({"capacity_factor": 0.5}, "capacity_factor"),
        ({"sequence": 4096}, "sequence = 4096 is longer"),
        ({"decay_share": 1.0}, "decay_share"),
    ],
)
def test_wrong_options_are_one_clear_line(change: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words.replace("(", r"\(")):
        options_from(change)


def test_wrong_data_and_checkpoints_are_one_clear_line(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"weights.cod: .* did you mean 'code'"):
        TokenFiles(data, {"cod": 1.0}, 0.1, 0.5, 64, 32)
    with pytest.raises(UserError, match="token id 63 is outside the vocabulary of 40"):
        TokenFiles(data, {}, 1.0, 0.5, 40, 32)
    with pytest.raises(UserError, match=r"no <domain>\.bin"):
        TokenFiles(tmp_path, {}, 1.0, 0.5, 64, 32)
    (tmp_path / "odd.bin").write_bytes(b"123")
    with pytest.raises(UserError, match=r"odd\.bin: holds 3 bytes"):
        TokenFiles(tmp_path, {}, 1.0, 0.5, 64, 32)
    options = options_from(TINY)
    with pytest.raises(UserError, match="no trunk to branch from"):
        Trainer(options, data, tmp_path / "new").decay(5)
    trainer = Trainer(options, data, tmp_path / "run")
    trainer.extend_trunk(2)
    with pytest.raises(UserError, match=r"was trained with learning_rate = 0.002, not 0.1"):
        Trainer(options_from({**TINY, "learning_rate": 0.1}), data, tmp_path / "run").extend_trunk(3)
    other = tmp_path / "other"
    shutil.copytree(data, other)
    tokens = bytearray(sorted(other.glob("*.bin"))[0].read_bytes())
    tokens[-2] ^= 1
    sorted(other.glob("*.bin"))[0].write_bytes(bytes(tokens))
    with pytest.raises(UserError, match="was trained on other token files"):
        Trainer(options, other, tmp_path / "run").extend_trunk(3)
    whole = (tmp_path / "run" / "trunk.pt").read_bytes()
    (tmp_path / "run" / "trunk.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="not a training checkpoint"):
        Trainer(options, data, tmp_path / "run").extend_trunk(3)
