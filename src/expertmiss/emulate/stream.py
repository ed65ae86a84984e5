"""A checkpoint larger than memory, evaluated layer by layer.

One decoder layer's weights are in memory at a time: they are read into tensors that the layers share, all documents pass through, the next layer is
read. Under scope ``layer`` this is exact, because a layer's pool sees only its own tokens (as in :mod:`expertmiss.emulate.decide`). Hidden states go
through files, one a document and layer, so that memory does not grow with the corpus and a killed run goes on where it was.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from expertmiss.emulate.checkpoint import Checkpoint
from expertmiss.emulate.decide import decided
from expertmiss.emulate.emulator import Emulated, Emulator
from expertmiss.emulate.rows import Row
from expertmiss.errors import UserError
from expertmiss.files import atomic_path, read_json, sha256_bytes, sha256_json, write_json
from expertmiss.models.load import DTYPES


class StreamedEmulator:
    """As :class:`~expertmiss.emulate.emulator.Emulator`, on the CPU, for a checkpoint folder whose weights need not fit in memory.

    Args:
        folder: config.json and safetensors files.
        rows, counts, threads: as there; ``state: carry`` and scope ``global`` are refused.
        dtype: of weights and hidden states in memory.

    Raises:
        UserError: no adapter for the architecture, files that are missing or foreign, a policy that cannot run layer by layer.
    """

    def __init__(
        self, folder: Path | str, rows: Sequence[Row], counts: NDArray[np.int64] | None = None, *, dtype: str = "float32", threads: int = 2
    ) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        for row in rows:
            for option, word in (("scope", "global"), ("state", "carry")):
                if row.policy.get(option) == word:
                    raise UserError(f"policy {row.name}: {option} {word} needs all layers of a token; use the model in memory")
        self.checkpoint = Checkpoint(folder)
        self.dtype = DTYPES[dtype]
        config = AutoConfig.from_pretrained(folder)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=self.dtype, attn_implementation="sdpa").eval()
        if self.dtype == torch.float64:
            model.config._experts_implementation = "eager"  # torch's grouped products have no float64 form
        model.model.rotary_emb = type(model.model.rotary_emb)(config=config)  # holds no weights, only a table
        self.model = model
        self.layers: list[nn.Module] = list(model.model.layers)
        self.emulator = Emulator(model, rows, counts, threads=threads)
        self._held: dict[str, Tensor] = {}
        about = [[row.name, dict(row.policy), row.capacity, row.seed] for row in rows]
        found = {one.file for one in self.checkpoint.tensors.values()}
        files = {
            file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in sorted(found)
        }  # reading them all would take too long
        digest = None if counts is None else sha256_bytes(np.ascontiguousarray(counts).tobytes())
        self._key = {"rows": about, "config": config.to_dict(), "files": files, "counts": digest, "dtype": dtype}

    def run(self, documents: Mapping[int, NDArray[np.int64]], work: Path) -> dict[int, Emulated]:
        """NLL and meters of every document.

        Args:
            documents: [T] token ids by document id.
            work: folder for hidden states and finished parts; the same call on the same folder continues a killed run.

        Raises:
            UserError: no documents; ``work`` belongs to another run; a weight is missing or of another shape; tokens that are no document.
        """
        if not documents:
            raise UserError("no documents to evaluate; name a split that holds some")
        for document, tokens in documents.items():
            self.emulator.start(tokens, document)
        self._claim(work, documents)
        levels = {document: self._level(work, document) for document in documents}
        if min(levels.values()) < 0:
            with self._embedding():
                for document in (one for one, level in levels.items() if level < 0):
                    ids = torch.from_numpy(documents[document])[None].expand(len(self.emulator.rows), -1)
                    self._save(work, 0, document, self._through(input_ids=ids))
        for layer in range(len(self.layers)):
            pending = [document for document, level in levels.items() if level <= layer]
            if pending:
                self._run_layer(work, layer, pending)
                _clear(work / f"hidden_{layer}")
        return self._finish(work, documents, [document for document, level in levels.items() if level <= len(self.layers)])

    def _run_layer(self, work: Path, layer: int, documents: Sequence[int]) -> None:
        routers = [router for router in self.emulator.routers if router.layer == layer]
        first = self.emulator.routers.index(routers[0]) if routers else 0
        steppers = self.emulator.steppers
        with self._only(layer):
            for document in documents:
                hidden = load_file(work / f"hidden_{layer}" / f"{document}.safetensors")["hidden"]
                for stepper in steppers:
                    stepper.reset(document)
                with decided(routers, steppers, self.emulator.pool, first=first):
                    hidden = self._through(inputs_embeds=hidden)
                meters = [stepper.meters() for stepper in steppers] if routers else []
                told = {
                    name: torch.tensor([float(meter[name][first]) for meter in meters], dtype=torch.float64) for name in (meters or [{}])[0]
                }
                if told:
                    _write(work / "meters" / f"{document}_{first}.safetensors", told)
                self._save(work, layer + 1, document, hidden)

    def _finish(self, work: Path, documents: Mapping[int, NDArray[np.int64]], pending: Sequence[int]) -> dict[int, Emulated]:
        if pending:
            with self._weights(self.model.model.norm, "model.norm"), self._weights(self.model.lm_head, "lm_head"), torch.inference_mode():
                for document in pending:
                    hidden = load_file(work / f"hidden_{len(self.layers)}" / f"{document}.safetensors")["hidden"]
                    nll, _ = self.emulator.nll_of(self.model.model.norm(hidden), documents[document], False)
                    _write(work / "nll" / f"{document}.safetensors", {"nll": torch.from_numpy(nll)})
            _clear(work / f"hidden_{len(self.layers)}")
        kinds = {name: values.dtype for name, values in self.emulator.steppers[0].meters().items()}
        results = {}
        for document in documents:
            parts = [load_file(work / "meters" / f"{document}_{index}.safetensors") for index in range(len(self.emulator.routers))]
            meters = {name: np.stack([part[name].numpy() for part in parts], axis=1).astype(kind) for name, kind in kinds.items()}
            results[document] = Emulated(load_file(work / "nll" / f"{document}.safetensors")["nll"].numpy(), meters)
        return results

    @contextmanager
    def _embedding(self) -> Iterator[None]:
        """The model without layers, its embedding in memory."""
        inner = self.model.model
        norm, inner.norm, inner.layers = inner.norm, nn.Identity(), nn.ModuleList()
        try:
            with self._weights(inner.embed_tokens, "model.embed_tokens"):
                yield
        finally:
            inner.norm, inner.layers = norm, nn.ModuleList(self.layers)

    @contextmanager
    def _only(self, layer: int) -> Iterator[None]:
        """The model with one layer between its input and its output, that layer's weights in memory."""
        inner = self.model.model
        norm, inner.norm, inner.layers = inner.norm, nn.Identity(), nn.ModuleList([self.layers[layer]])
        config, multiplier = inner.config, getattr(inner, "embedding_multiplier", None)
        if getattr(config, "layer_types", None):
            inner.config = copy.copy(config)
            inner.config.layer_types = [config.layer_types[layer]]
        if multiplier is not None:  # Granite scales what comes in, which the embedding's pass has done
            inner.embedding_multiplier = 1.0
        try:
            with self._weights(self.layers[layer], f"model.layers.{layer}", keep=True):
                yield
        finally:
            inner.norm, inner.layers, inner.config = norm, nn.ModuleList(self.layers), config
            if multiplier is not None:
                inner.embedding_multiplier = multiplier

    @contextmanager
    def _weights(self, module: nn.Module, name: str, keep: bool = False) -> Iterator[None]:
        """``module`` with its weights in memory; ``keep``: their tensors serve the next such module."""
        wanted = module.state_dict()
        held = self._held if keep else {}
        self._held = {}
        for key in [key for key, tensor in held.items() if key not in wanted or tensor.shape != wanted[key].shape]:
            del held[key]
        for key, like in wanted.items():
            if key not in held:
                held[key] = torch.empty(like.shape, dtype=like.dtype)
            self.checkpoint.fill(f"{name}.{key}", held[key])
        module.load_state_dict(held, assign=True)
        yield
        module.to("meta")  # lets go of the tensors
        self._held = held if keep else {}

    def _through(self, **inputs: Tensor) -> Tensor:
        with torch.inference_mode():
            hidden: Tensor = self.model.model(**inputs, use_cache=False).last_hidden_state
        return hidden

    def _save(self, work: Path, level: int, document: int, hidden: Tensor) -> None:
        _write(work / f"hidden_{level}" / f"{document}.safetensors", {"hidden": hidden})

    def _level(self, work: Path, document: int) -> int:
        """Layers that a document has passed; -1 before the embedding, number of layers + 1 when finished."""
        if (work / "nll" / f"{document}.safetensors").is_file():
            return len(self.layers) + 1
        levels = [level for level in range(len(self.layers) + 1) if (work / f"hidden_{level}" / f"{document}.safetensors").is_file()]
        return max(levels, default=-1)

    def _claim(self, work: Path, documents: Mapping[int, NDArray[np.int64]]) -> None:
        texts = {str(document): sha256_bytes(np.ascontiguousarray(tokens).tobytes()) for document, tokens in documents.items()}
        key = {"key": sha256_json({**self._key, "documents": texts})}
        mark = work / "key.json"
        if mark.is_file() and read_json(mark) != key:
            raise UserError(f"{work}: holds parts of another run (other documents, policies or weights); delete it or name another folder")
        for leftover in work.glob("*/.*.tmp"):  # of a killed writer
            leftover.unlink()
        write_json(mark, key)


def _write(path: Path, tensors: dict[str, Tensor]) -> None:
    with atomic_path(path) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary)


def _clear(folder: Path) -> None:
    for part in folder.glob("*.safetensors"):
        part.unlink()
