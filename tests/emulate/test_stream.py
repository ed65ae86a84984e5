"""Layer by layer from the files: what the model in memory gives, resumable, and with one layer's weights at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from expertmiss.emulate import stream
from expertmiss.emulate.emulator import Emulator
from expertmiss.emulate.rows import Row
from expertmiss.emulate.stream import StreamedEmulator
from expertmiss.errors import UserError
from expertmiss.models.adapters import ADAPTERS
from expertmiss.models.load import load_model
from tests.models.tiny import tiny_model

TEXTS = {document: np.random.default_rng(document).integers(0, 64, 40) for document in (3, 8, 9)}
ROWS = [
    Row("fetch_all", {"name": "fetch_all", "miss_rule": {"name": "fetch_all"}, "initial": "cold"}, 6),
    Row("first_choice", {"name": "first_choice", "miss_rule": {"name": "first_choice"}, "admission": {"name": "every_miss"}, "initial": "cold"}, 6),
]  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint of every architecture, in several files."""
    found = {}
    for kind in ADAPTERS:
        found[kind] = tmp_path_factory.mktemp(kind)
        tiny_model(kind).save_pretrained(found[kind], max_shard_size="60KB")
        assert len(list(found[kind].glob("*.safetensors"))) > 1
    return found


@pytest.mark.parametrize("kind", sorted(ADAPTERS))
def test_equals_the_model_in_memory(kind: str, folders: dict[str, Path], tmp_path: Path) -> None:
    streamed = StreamedEmulator(folders[kind], ROWS)
    results = streamed.run(TEXTS, tmp_path)
    model = tiny_model(kind)
    model.config._experts_implementation = streamed.model.config._experts_implementation
    emulator = Emulator(model, ROWS)
    for document, tokens in TEXTS.items():
        expected = emulator.whole(tokens, document)
        np.testing.assert_allclose(results[document].nll, expected.nll, atol=1e-5, rtol=0)
        assert results[document].meters.keys() == expected.meters.keys()
        for name, values in expected.meters.items():
            np.testing.assert_allclose(results[document].meters[name], values, atol=1e-4, err_msg=name)
            assert results[document].meters[name].dtype == values.dtype
    assert all(parameter.is_meta for parameter in streamed.model.parameters())
    assert results[3].meters["substituted"][1].sum() > 0
    assert [file.name for folder in tmp_path.glob("hidden_*") for file in folder.iterdir()] == []


def test_the_built_in_model_to_the_last_bit(tmp_path: Path) -> None:
    """Same kernels, same batch: what is read by layers from bfloat16 files is what transformers loads."""
    folder = Path(__file__).parents[2] / "models" / "builtin"
    rows = [Row(row.name, row.policy, 64) for row in ROWS]
    tokens = np.random.default_rng(0).integers(0, 4096, 48)
    streamed = StreamedEmulator(folder, rows).run({5: tokens}, tmp_path)[5]
    expected = Emulator(load_model(folder)[0], rows).whole(tokens, 5)
    assert streamed.nll.tobytes() == expected.nll.tobytes()
    for name, values in expected.meters.items():
        np.testing.assert_array_equal(streamed.meters[name], values, err_msg=name)


def test_other_types_than_the_files(folders: dict[str, Path], tmp_path: Path) -> None:
    results = StreamedEmulator(folders["qwen3_moe"], ROWS, dtype="float64").run(TEXTS, tmp_path)
    expected = Emulator(tiny_model("qwen3_moe").double(), ROWS).whole(TEXTS[3], 3)
    np.testing.assert_allclose(results[3].nll, expected.nll, atol=1e-9)


class Killed(BaseException):
    pass


def test_a_run_stopped_at_any_write_goes_on(folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folders["qwen3_moe"]
    expected = StreamedEmulator(folder, ROWS).run(TEXTS, tmp_path / "whole")
    write = stream._write
    work, writes, stops = tmp_path / "stopped", [0], 0

    def stop_at_fifth(path: Path, tensors: dict[str, torch.Tensor]) -> None:
        writes[0] += 1
        if writes[0] % 5 == 0:
            raise Killed
        write(path, tensors)

    monkeypatch.setattr(stream, "_write", stop_at_fifth)
    for _ in range(40):
        try:
            results = StreamedEmulator(folder, ROWS).run(TEXTS, work)
            break
        except Killed:
            stops += 1
    assert stops >= 4
    for document, one in expected.items():
        assert results[document].nll.tobytes() == one.nll.tobytes()
        for name, values in one.meters.items():
            np.testing.assert_array_equal(results[document].meters[name], values)


DIES = """
import os, signal, sys
import torch
torch.set_num_threads(1)
from pathlib import Path
from expertmiss.emulate import stream
from tests.emulate.test_stream import ROWS, TEXTS
atomic = stream.save_file
count = 0
def save(tensors, path):
    global count
    count += 1
    atomic(tensors, path)
    if count == 6:
        os.kill(os.getpid(), signal.SIGKILL)  # the temporary file is written, its name is not
stream.save_file = save
stream.StreamedEmulator(sys.argv[1], ROWS).run(TEXTS, Path(sys.argv[2]))
"""


@pytest.mark.slow
def test_kill_9_leaves_nothing_half_done(folders: dict[str, Path], tmp_path: Path) -> None:
    folder, work = folders["olmoe"], tmp_path / "killed"
    done = subprocess.run([sys.executable, "-c", DIES, str(folder), str(work)], cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(work.glob("*/.*.tmp"))
    results = StreamedEmulator(folder, ROWS).run(TEXTS, work)
    expected = StreamedEmulator(folder, ROWS).run(TEXTS, tmp_path / "whole")
    assert all(results[document].nll.tobytes() == one.nll.tobytes() for document, one in expected.items())
    assert not list(work.glob("*/.*.tmp"))


def test_a_finished_run_reads_no_weights(folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = StreamedEmulator(folders["olmoe"], ROWS).run(TEXTS, tmp_path)
    again = StreamedEmulator(folders["olmoe"], ROWS)
    monkeypatch.setattr(again.checkpoint, "fill", lambda name, out: pytest.fail(f"read {name}"))
    assert all(again.run(TEXTS, tmp_path)[document].nll.tobytes() == one.nll.tobytes() for document, one in first.items())


def test_layers_share_their_tensors(folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    streamed = StreamedEmulator(folders["qwen3_moe"], ROWS)
    places: dict[str, set[int]] = {}
    fill = streamed.checkpoint.fill

    def noted(name: str, out: torch.Tensor) -> None:
        if "gate_up" in name:
            places.setdefault(name, set()).add(out.data_ptr())
        fill(name, out)

    monkeypatch.setattr(streamed.checkpoint, "fill", noted)
    streamed.run(TEXTS, tmp_path)
    assert len(places) == 3 and len(set.union(*places.values())) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scope": "global"}, "scope global needs all layers"),
        ({"state": "carry"}, "state carry needs all layers"),
    ],
)
def test_policies_that_need_all_layers_are_refused(change: dict[str, Any], message: str, folders: dict[str, Path]) -> None:
    with pytest.raises(UserError, match=message):
        StreamedEmulator(folders["olmoe"], [Row("one", {**ROWS[0].policy, **change}, 6)])


def test_damaged_checkpoints_and_foreign_work_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no such file; a checkpoint folder holds"):
        StreamedEmulator(tmp_path, ROWS)
    model = tiny_model("olmoe")
    broken = tmp_path / "broken"
    model.save_pretrained(broken)
    file = broken / "model.safetensors"
    weights = load_file(file)
    save_file({name: tensor for name, tensor in weights.items() if name != "model.layers.1.mlp.gate.weight"}, file)
    with pytest.raises(UserError, match=r"weight 'model\.layers\.1\.mlp\.gate\.weight' is not in the checkpoint"):
        StreamedEmulator(broken, ROWS).run(TEXTS, tmp_path / "work")
    save_file({**weights, "model.layers.1.mlp.gate.weight": torch.zeros(3, 3)}, file)
    with pytest.raises(UserError, match=r"has shape \[3, 3\], config\.json says \[16, 32\]"):
        StreamedEmulator(broken, ROWS).run(TEXTS, tmp_path / "work2")
    save_file(weights, file)
    with open(file, "r+b") as stream_:
        stream_.truncate(file.stat().st_size - 100)
    with pytest.raises(UserError, match="ends within a weight"):
        StreamedEmulator(broken, ROWS).run(TEXTS, tmp_path / "work3")
    file.write_bytes(b"not a checkpoint at all")
    with pytest.raises(UserError, match="not a safetensors file"):
        StreamedEmulator(broken, ROWS)
    work = tmp_path / "taken"
    StreamedEmulator(folders["olmoe"], ROWS).run({3: TEXTS[3]}, work)
    with pytest.raises(UserError, match="holds parts of another run"):
        StreamedEmulator(folders["olmoe"], ROWS).run(TEXTS, work)
    os.utime(next(folders["olmoe"].glob("*.safetensors")), (1, 1))
    with pytest.raises(UserError, match="holds parts of another run"):
        StreamedEmulator(folders["olmoe"], ROWS).run({3: TEXTS[3]}, work)
    with pytest.raises(UserError, match="no documents"):
        StreamedEmulator(folders["olmoe"], ROWS).run({}, tmp_path / "none")
