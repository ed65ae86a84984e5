"""Token files of the training corpora, and the batches drawn from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from expertmiss.errors import UserError, suggest
from expertmiss.files import sha256_file, sha256_json

TokenArray = npt.NDArray[np.uint16]
START = 0  # id of the token that begins every document (the tokenizer's <|endoftext|>)


class TokenFiles:
    """``<domain>.bin`` (training) and ``<domain>.val.bin`` (held out), each a memory-mapped run of uint16 token ids.

    Documents follow one another, each begun by ``START``; held-out documents all have ``sequence`` tokens.

    Args:
        folder: where the files lie.
        weights: sampling weight per domain; every named domain must exist.
        rest_weight: weight shared equally by the domains not named.
        aligned_share: share of training windows that begin where a document does (as held-out ones do) instead of anywhere.
        vocab_size: ids must be smaller.
        sequence: positions per training window.

    Raises:
        UserError: no files, a file too short, a domain without held-out tokens, an unknown domain, an id out of range.
    """

    def __init__(
        self, folder: Path, weights: Mapping[str, float], rest_weight: float, aligned_share: float, vocab_size: int, sequence: int
    ) -> None:
        self.sequence, self.aligned_share = sequence, aligned_share
        window = sequence + 1
        self.train = {path.stem: _open(path, vocab_size, window) for path in sorted(folder.glob("*.bin")) if not path.stem.endswith(".val")}
        if not self.train:
            raise UserError(f"{folder}: no <domain>.bin token files; prepare the training corpora first")
        self.held_out = {name: _open(folder / f"{name}.val.bin", vocab_size, sequence) for name in self.train}
        self.starts = {name: np.flatnonzero(tokens[: len(tokens) - sequence] == START) for name, tokens in self.train.items()}
        for name in weights:
            if name not in self.train:
                raise UserError(f"train_builtin.weights.{name}: {folder} has no {name}.bin; {suggest(name, self.train)}")
        rest = [name for name in self.train if name not in weights]
        share = np.array([weights.get(name, rest_weight / max(len(rest), 1)) for name in self.train])
        if not (share >= 0).all() or share.sum() <= 0:
            raise UserError("train_builtin.weights: weights must be >= 0 and not all zero")
        self.domains = list(self.train)
        self.digest = sha256_json({path.name: sha256_file(path) for path in sorted(folder.glob("*.bin"))})
        self.share = share / share.sum()

    def batch(self, seed: int, step: int, count: int) -> tuple[Tensor, npt.NDArray[np.int64]]:
        """``count`` random windows: tokens [count, sequence + 1] int64 and their domains' indices [count].

        A function of (seed, step) alone, so that a resumed run sees the batches of an uninterrupted one.
        """
        draw = np.random.default_rng([seed, step])
        chosen = draw.choice(len(self.domains), size=count, p=self.share)
        rows = np.empty((count, self.sequence + 1), dtype=np.int64)
        for row, domain in enumerate(chosen):
            name = self.domains[domain]
            tokens, starts = self.train[name], self.starts[name]
            start = int(draw.integers(0, len(tokens) - self.sequence))
            if draw.random() < self.aligned_share and len(starts):
                start = int(starts[max(0, int(np.searchsorted(starts, start, side="right")) - 1)])
            rows[row] = tokens[start : start + self.sequence + 1]
        return torch.from_numpy(rows), chosen

    def held_out_windows(self, domain: str, count: int) -> Tensor:
        """Up to ``count`` held-out documents [n, sequence] int64, spread evenly over the file."""
        tokens = self.held_out[domain]
        whole = len(tokens) // self.sequence
        picks = np.unique(np.linspace(0, whole - 1, min(count, whole)).astype(np.int64))
        return torch.from_numpy(np.stack([tokens[p * self.sequence : (p + 1) * self.sequence] for p in picks]).astype(np.int64))


def _open(path: Path, vocab_size: int, window: int) -> TokenArray:
    if not path.is_file():
        raise UserError(f"{path}: no such file; every domain needs <domain>.bin and <domain>.val.bin")
    if path.stat().st_size % 2 or path.stat().st_size < 2 * window:
        raise UserError(f"{path}: holds {path.stat().st_size} bytes; it must be uint16 ids, at least {window} of them")
    tokens = np.memmap(path, dtype=np.uint16, mode="r")
    largest = int(tokens.max())
    if largest >= vocab_size:
        raise UserError(
            f"{path}: token id {largest} is outside the vocabulary of {vocab_size}; prepare the file with the model's tokenizer"
        )
    return tokens
