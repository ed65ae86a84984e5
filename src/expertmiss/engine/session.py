"""A model that decodes on a cache of expert slots: the thin Python side of ``src/engine``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expertmiss.engine.library import library
from expertmiss.errors import UserError
from expertmiss.policies import validate


@dataclass(frozen=True)
class EngineOptions:
    """How a model is run; what is executed is the policy's business.

    Attributes:
        store: slow tier, ``direct`` (aligned reads past the page cache) or ``mapped`` (host memory once the kernel holds the file).
        device: fast tier, ``cpu``, a ggml device's name such as ``CUDA0``, or ``rpc:HOST:PORT``.
        cache_type: of keys and values, ``f16`` or ``f32``.
        context: tokens that fit.
        batch: prompt tokens computed at once.
        threads: of the model.
        io_threads: reads under way at once.
        flash_attention: llama.cpp's fused attention.
        repack: let llama.cpp rearrange weights for the processor, as it does by default; then only stock runs.
    """

    store: str = "direct"
    device: str = "cpu"
    cache_type: str = "f16"
    context: int = 4096
    batch: int = 512
    threads: int = 1
    io_threads: int = 8
    flash_attention: bool = False
    repack: bool = False


def engine_options(cfg: dict[str, Any], context: int) -> EngineOptions:
    """The engine as the section ``engine`` of the configuration describes it; K/V in float32, as in the agreement gates."""
    return EngineOptions(
        store=cfg["store"], device=cfg["device"], cache_type="f32", context=context, threads=cfg["threads"], io_threads=cfg["io_threads"]
    )


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except (library().EngineError, ValueError) as problem:
        raise UserError(str(problem)) from None


class Engine:
    """A loaded GGUF model. After :meth:`start` or :meth:`start_stock` it decodes.

    Raises:
        UserError: everything here, for a model, option, token or policy that the engine refuses.
    """

    def __init__(self, path: Path | str, options: EngineOptions = EngineOptions()) -> None:
        with _refusals():
            self._session = library().Session(str(path), asdict(options))
        self.options = options
        self.router: dict[str, Any] = self._session.router
        self.architecture: str = self._session.architecture
        self.vocabulary: int = self._session.vocabulary

    def start(
        self, policy: Mapping[str, Any], capacity: int, counts: NDArray[np.int64] | None = None, seed: int = 0, *, log: bool = False,
        keep: bool = False, check: bool = False, landing: str = "scheduled",
    ) -> None:  # fmt: skip
        """Decode on ``capacity`` slots a layer from now on.

        Args:
            policy: as the core takes it.
            counts: int64 [L, E] requests in the calibration split, for warm starts.
            seed: of a random start and of draws without a seed.
            log: keep the core's decision log (:meth:`take_log`).
            keep: keep router logits, executed ids and weights (:meth:`take_kept`).
            check: assert the core's invariants at every step.
            landing: ``scheduled``: admissions land exactly at their due token, so that no decision depends on the disk; ``timed``: at the first
                token that begins after their read has ended, whatever their due token. Logged landings replay either.
        """
        if self.router["top_k"] <= capacity <= self.router["experts"]:  # the engine words the other refusal
            validate(policy, self.router, capacity)
        with _refusals():
            self._session.start(dict(policy), capacity, counts, seed, log=log, keep=keep, check=check, landing=landing)

    @property
    def room(self) -> int:
        """Tokens that still fit into the context."""
        return self.options.context - int(self._session.position)

    @property
    def stock(self) -> bool:
        """Whether nothing is intercepted."""
        return bool(self._session.stock)

    def start_stock(self) -> None:
        """Decode on stock llama.cpp with the same settings from now on: the reference."""
        with _refusals():
            self._session.start_stock()

    def reset(self, document: int = 0) -> None:
        """Forget the text and start a document from the policy's initial state."""
        with _refusals():
            self._session.reset(document)

    def prefill(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Prompt ``tokens``, in batches and lossless; the policy does not see them. Logits [V] after the last."""
        with _refusals():
            logits: NDArray[np.float32] = self._session.prefill([int(token) for token in tokens])
        return logits

    def step(self, token: int | Sequence[int]) -> NDArray[np.float32]:
        """One token under the policy; logits [V] after it. A sequence of more than one is refused: its experts' union may not fit."""
        tokens = [token] if isinstance(token, int | np.integer) else list(token)
        if len(tokens) != 1:
            raise UserError(
                f"a batch of {len(tokens)} tokens cannot be decoded under a policy, which chooses experts token by token; "
                "step through them, or give a prompt to prefill"
            )
        with _refusals():
            logits: NDArray[np.float32] = self._session.step(int(tokens[0]))
        return logits

    def nll(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        """Step through ``tokens`` [T]: NLL in nats [T - 1], entry ``t`` of the token at ``t + 1``."""
        with _refusals():
            losses: NDArray[np.float64] = self._session.nll([int(token) for token in tokens])
        return losses

    def verify(self) -> int:
        """Compare every slot with the file; the number of slots compared."""
        with _refusals():
            compared: int = self._session.verify()
        return compared

    def meters(self) -> dict[str, NDArray[Any]]:
        """Every meter of the core as [L], since the last reset."""
        with _refusals():
            found: dict[str, NDArray[Any]] = self._session.meters()
        return found

    def traffic(self) -> dict[str, Any]:
        """Reads and seconds since the start; ``src/engine/decide.hpp`` and ``times.hpp`` say what each counts."""
        found: dict[str, Any] = self._session.traffic()
        return found

    def take_times(self) -> dict[str, NDArray[Any]]:
        """Where the time of each stepped token went, since the last call (or the start); prompts are not in it.

        Returns:
            ``wall`` float64 [T] in seconds and its parts ``compute`` (the model, and all that is not one of the others), ``waiting`` (for reads
            of experts that the token needs and for late admissions), ``policy`` (the core, slots, ids and weights) and ``background``
            (admissions: reads begun, copies into slots), all of the thread that decodes; ``fetch_bytes`` and ``admission_bytes`` int64 [T],
            of experts whose reads the token began because it needed them, or for admissions. On stock everything is ``compute``.
        """
        found: dict[str, NDArray[Any]] = self._session.take_times()
        return found

    def take_log(self) -> Any:
        """The core's decision log since the last call."""
        with _refusals():
            return self._session.take_log()

    def take_kept(self) -> dict[str, NDArray[Any]]:
        """``logits`` float32 [T, L, E], ``ids`` uint16 and ``weights`` float64 [T, L, K] since the last call."""
        with _refusals():
            found: dict[str, NDArray[Any]] = self._session.take_kept()
        return found

    def tokenize(self, text: str, special: bool = True) -> list[int]:
        """Token ids of ``text``."""
        with _refusals():
            found: list[int] = self._session.tokenize(text, special)
        return found

    def piece(self, token: int) -> bytes:
        """The bytes of a token, which may be a part of a character."""
        found: bytes = self._session.piece(token)
        return found

    def ends_text(self, token: int) -> bool:
        """Whether the model ends its text with this token."""
        found: bool = self._session.ends_text(token)
        return found

    def chat_prompt(self, turns: Sequence[tuple[str, str]]) -> str:
        """(role, text) ``turns`` in the model's chat format, the assistant's turn opened; empty where the file has none."""
        with _refusals():
            found: str = self._session.chat_prompt([tuple(turn) for turn in turns])
        return found
