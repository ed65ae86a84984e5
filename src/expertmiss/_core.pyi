"""Types of the compiled policy core (C++20, sources in src/core); the definitions page is its specification.

Vocabulary: L layers, E experts, K experts per token (top-k), M ranked experts stored per token (depth), T tokens,
C capacity in experts per layer (scope ``global``: one pool of C x L), D segments (runs of equal document id).

``meta`` is a trace's metadata: ``layers``, ``experts``, ``top_k``, ``gating`` (softmax | sigmoid | softmax_after_topk),
``normalise``, ``scale``, ``bias`` (null or [L][E]), ``groups`` (null or {count, allowed, score}); other keys are ignored.
``policy`` is a policy configuration as a plain dict; infinite parameters may be ``float("inf")`` or the string ``"inf"``.
``expertmiss.policies`` wraps these calls with readable errors; here a bad argument is a ``ValueError`` with one line.
"""

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

Layer = tuple[NDArray[np.uint16], NDArray[np.float32], NDArray[np.float64], NDArray[np.float32]]
"""One layer of a ranked trace: ids [T, M], z [T, M], lse [T], zmin [T]; C-contiguous, never copied, may be read-only."""

class Meters(TypedDict):
    """Counters per segment and layer, each [D, L]. Re-routing rules count hits and fetches on X and substitutions on S \\ X."""

    tokens: NDArray[np.int64]
    calls: NDArray[np.int64]  # K per token
    hits: NDArray[np.int64]
    fetches: NDArray[np.int64]
    substituted: NDArray[np.int64]
    dropped: NDArray[np.int64]
    fallback_fetches: NDArray[np.int64]
    fallback_drops: NDArray[np.int64]
    landings: NDArray[np.int64]  # admissions that became resident
    evictions: NDArray[np.int64]  # of this layer's experts
    wasted: NDArray[np.int64]  # evictions of entries without a hit
    compulsory: NDArray[np.int64]  # misses of experts never resident since the reset
    collision: NDArray[np.int64]  # misses of experts last evicted without a hit
    capacity: NDArray[np.int64]  # all other misses
    reswaps: NDArray[np.int64]  # substituted again within 16 tokens (calls of S \\ X left out)
    past_depth: NDArray[np.int64]  # steps whose decision may depend on experts of rank >= M
    mass: NDArray[np.float64]  # sum of m(t, l), the substituted gate mass
    dropped_mass: NDArray[np.float64]  # sum of w over dropped calls, fallback drops included
    heaviest: NDArray[np.float64]  # sum over tokens of the largest substituted w (0 where none)
    agreement: NDArray[np.float64]  # sum over tokens of |executed n S| / K
    kl: NDArray[
        np.float64
    ]  # sum over tokens of KL(executed || router), nats; NaN without kl=True, for sigmoid gates, or with a token that executed nothing

class Calls(TypedDict):
    """One row per call of X in serial order (token, layer, rank); T x L x K rows."""

    document: NDArray[np.int32]
    t: NDArray[np.int32]
    layer: NDArray[np.int16]
    rank: NDArray[np.int16]  # true router rank
    expert: NDArray[np.uint16]
    verdict: NDArray[np.uint8]  # index into VERDICTS
    substitute: NDArray[np.int32]  # expert executed instead, -1 none
    victim: NDArray[np.int32]  # expert evicted for this fetch, -1 none; scope global: layer * E + expert
    weight: NDArray[np.float64]  # router weight w
    executed_weight: NDArray[np.float64]  # of the expert executed for this call, model scale included; 0 when dropped

class Landings(TypedDict):
    """One row per landing in serial order (token, layer of the step, queue order)."""

    document: NDArray[np.int32]
    t: NDArray[np.int32]
    layer: NDArray[np.int16]  # of the expert
    expert: NDArray[np.uint16]
    victim: NDArray[np.int32]  # as in Calls

class Log(TypedDict):
    calls: Calls
    landings: Landings

class Result(TypedDict):
    meters: Meters
    documents: NDArray[np.int32]  # [D] document id of each segment
    initial_order: NDArray[np.uint16]  # [n, 2] (layer, expert) in order of insertion, pool by pool
    log: Log | None

class Explanation(TypedDict):
    """Everything one step saw and did. Arrays over ranks follow the true rank order; arrays over calls follow X."""

    document: int
    t: int
    layer: int
    order: NDArray[np.uint16]  # [M] experts in rank order
    z: NDArray[np.float64]  # [M]
    p: NDArray[np.float64]  # [M] gate probabilities
    s: NDArray[np.float64]  # [M] selection scores
    w: NDArray[np.float64]  # [M] gate weight, normalised over S
    residents_before: NDArray[np.uint16]  # ids rising, before step 1
    landed: list[tuple[int, int]]  # (expert, victim or -1)
    requested: NDArray[np.uint16]  # X
    ranks: NDArray[np.int16]  # true ranks of X
    verdicts: list[str]
    substitutes: NDArray[np.int32]
    victims: NDArray[np.int32]
    executed: NDArray[np.uint16]
    weights: NDArray[np.float64]  # of the executed experts, scale included
    A: NDArray[np.float64]  # [E] accumulated substituted mass after the step
    queue: list[tuple[int, int, int]]  # (layer, expert, due) after the step
    residents_after: NDArray[np.uint16]

VERDICTS: tuple[str, ...]
"""("hit", "fetch", "substitute", "drop", "fallback_fetch", "fallback_drop")."""

MUTANTS: tuple[str, ...]
"""Seeded defects that the agreement gates must catch: ("late_landing", "tie_higher_id", "no_shield", "update_executed", "stale_mass")."""

def source_hash() -> str:
    """SHA-256 over the sources this module was compiled from (see ``expertmiss.policies.freshness``)."""

def exp(x: float) -> float:
    """The core's exponential: the same bits in every build, within 1 ulp."""

def log(x: float) -> float:
    """The core's natural logarithm of a positive normal number: the same bits in every build, within 2 ulp."""

def half_life_table(half_life: int) -> NDArray[np.float64]:
    """[h] float64 nearest to 2^(j/h)."""

def draw(seed: int, values: Sequence[int]) -> int:
    """The chained SplitMix64 hash of the definitions before the modulus: h = finalise(seed); h = finalise(h ^ v) for each v."""

def rank_logits(
    z: NDArray[np.float32] | NDArray[np.float64],
    depth: int,
    *,
    top_k: int = 1,
    gating: str = "softmax",
    bias: NDArray[np.float64] | None = None,
    groups: dict[str, Any] | None = None,
) -> tuple[NDArray[np.uint16], NDArray[np.float32], NDArray[np.float64], NDArray[np.float32]]:
    """Rank router logits.

    Args:
        z: [T, E] logits as the model computed them, widened to float64 inside.
        depth: M, ranks to return; K <= M <= the number of allowed experts (E without group limits).
        top_k: K, to refuse group limits that allow fewer.
        gating: how p follows from z; needed with a bias or group limits, where s = p + bias ranks or scores groups.
        bias: [E] selection bias of this layer.
        groups: {count, allowed, score: max | top2_sum}; experts outside the allowed groups are never ranked.

    Returns:
        ids uint16 [T, M] (ties to the lower id), z float32 [T, M] of those ids, lse float64 [T] = log sum exp over all E, zmin float32 [T]
        = smallest logit over all E. Record traces from float32 logits: float64 ones are ranked as given and rounded on return.

    Raises:
        ValueError: a non-finite logit (names row and expert), or an impossible depth or group limit.
    """

def check_policy(meta: dict[str, Any], policy: dict[str, Any], capacity: int, depth: int | None = None) -> None:
    """Raise ``ValueError`` with one line when the definitions refuse the combination. ``depth`` (M) defaults to all candidates."""

def initial_order(
    meta: dict[str, Any], policy: dict[str, Any], capacity: int, counts: NDArray[np.int64] | None = None, seed: int = 0
) -> NDArray[np.uint16]:
    """[n, 2] (layer, expert) in order of insertion, pool by pool."""

def request_counts(ids: NDArray[np.uint16], top_k: int, experts: int) -> NDArray[np.int64]:
    """[E] how often each expert stands among the first K of a layer's ids [T, M]."""

def simulate(
    layers: Sequence[Layer],
    document: NDArray[np.int32],
    meta: dict[str, Any],
    policy: dict[str, Any],
    capacity: int,
    counts: NDArray[np.int64] | None = None,
    seed: int = 0,
    log: bool = False,
    *,
    kl: bool = True,
    threads: int = 1,
    check: bool = False,
    mutant: str | None = None,
) -> Result:
    """Replay a policy over a ranked trace. Releases the GIL.

    Args:
        layers: one (ids, z, lse, zmin) per layer, zero-copy.
        document: [T] document ids; the state resets where they change (unless ``state: carry``).
        capacity: C, experts per layer.
        counts: [L, E] requests in the calibration split, for ``initial: warm``.
        seed: for ``initial: random``, and for choosers whose policy names no seed.
        log: also return the decision log (39 bytes per call).
        kl: also sum KL(executed || router); costs K logarithms per step.
        threads: layers simulated at once; scope ``global`` is serial.
        check: assert the invariants of the definitions at every step (``RuntimeError``).
        mutant: one of MUTANTS; tests only.

    Raises:
        ValueError: bad shapes, ids out of range, a policy the definitions refuse, non-finite logits, a zero gate sum.
    """

class Stepper:
    """The closed loop: one policy's state, stepped layer by layer with logits of the running model. Not thread-safe.

    Scope ``layer``: each layer counts its own tokens, so a document may be stepped token by token or layer by layer.
    Scope ``global``: layers must come in the order 0 .. L-1 for every token (``ValueError`` otherwise).
    """

    def __init__(
        self,
        meta: dict[str, Any],
        policy: dict[str, Any],
        capacity: int,
        counts: NDArray[np.int64] | None = None,
        seed: int = 0,
        *,
        log: bool = False,
        kl: bool = True,
        check: bool = False,
        mutant: str | None = None,
    ) -> None: ...
    def reset(self, document: int) -> None:
        """Start a document: back to the initial state (``state: carry``: only the document id changes). Meters restart."""

    def step(
        self, layer: int, z: NDArray[np.float32] | NDArray[np.float64], arrived: list[int] | None = None
    ) -> tuple[NDArray[np.uint16], NDArray[np.float64]]:
        """One token in one layer, logits z [E].

        Args:
            arrived: experts of the queue that land now, in this order, in place of those that are due (scope ``layer`` only). An empty list
                lets nothing land. ``ValueError`` for an expert that is not queued, and for more than ``upload_cap`` or than are resident.

        Returns:
            executed expert ids [n] in order of execution and their weights [n], the model's scale included; n <= K.
        """

    def steps(
        self, layer: int, z: NDArray[np.float32] | NDArray[np.float64]
    ) -> tuple[NDArray[np.uint16], NDArray[np.float64], NDArray[np.int32]]:
        """Consecutive tokens z [T, E] of one layer (scope ``layer`` only); same result as T calls of ``step``.

        Returns:
            ids [T, K] and weights [T, K], unused places filled with id 0 and weight 0, and their number n [T].
        """

    def explain(self, layer: int, z: NDArray[np.float32] | NDArray[np.float64]) -> Explanation:
        """As ``step``, and tell what it saw and did."""

    def residents(self, layer: int) -> NDArray[np.uint16]:
        """Resident experts of a layer, ids rising."""

    def meters(self) -> dict[str, NDArray[Any]]:
        """The fields of Meters as [L] arrays, since the last ``reset``."""

    def take_log(self) -> Log:
        """Rows since the last call, in the order in which the steps were made; needs ``log=True``."""

    def snapshot(self) -> bytes:
        """The whole state. Equal states give equal bytes. Meters and log are not part of it."""

    def restore(self, snapshot: bytes) -> None:
        """Raises ``ValueError`` for a snapshot of another geometry, policy or capacity."""

    @property
    def initial_order(self) -> NDArray[np.uint16]: ...
    @property
    def document(self) -> int: ...
