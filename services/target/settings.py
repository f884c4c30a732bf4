"""Settings of a target: one frozen value, validated once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from services.common.pair.handoff import HandoffMode
from services.common.request.errors import invalid_field
from services.common.serving.callers import guarded
from services.common.serving.hub import OWN_HEAD
from services.common.serving.secret import check_secret
from services.common.serving.settings import Choice
from services.target.scheduling.settings import PAUSE_S

_AUTO, _CODES, _FP8 = "auto", "int8", "fp8"
_NODES = {"cpu": (4, 8, 16), "cuda": (8, 16)}
"""Nodes of trees. Four bring some percent more than a chain: of use where a row is dear (docs/log/2026-11.md)."""
THROUGHPUT, LATENCY = "throughput", "latency"
_KNOWN: dict[str, tuple[str, ...]] = {
    "device": ("cpu", "cuda"),
    "dtype": ("float32", "float64", "bfloat16"),
    "kv_dtype": (_AUTO, _CODES),
    "activations": (_AUTO, _CODES, _FP8),
    "drafter_weights": (_AUTO, _CODES, "dtype"),
    "handoff": (_AUTO, HandoffMode.FLAGS, HandoffMode.HOST, HandoffMode.WIRE),
    "drafter_memory": ("shared", "none"),
    "exact": ("fallback", "strict", "off"),
}
"""What settings with a few words may be."""


class Packs(NamedTuple):
    """Most prompt tokens of a round in which requests decode, and of one of a burst."""

    chunk: int
    burst: int


_PACKS = {
    (True, THROUGHPUT): Packs(2048, 4096),
    (True, LATENCY): Packs(512, 1024),
    (False, THROUGHPUT): Packs(128, 128),
    (False, LATENCY): Packs(32, 32),
}
"""By whether a GPU computes them, and what is preferred."""
_OPEN = "over TCP anybody could call: give tls_ca or session_secret, or say insecure; unix:/path needs none of them"
_NOT_NEGATIVE = (
    "threads",
    "context_limit",
    "blocks",
    "snapshots",
    "memory_bytes",
    "expert_bytes",
    "prefill_chunk",
    "max_queued_tokens",
    "watchdog_s",
    "drain_grace_s",
    "propagation_s",
)
WIDEST = 1024
"""Rows of a draft and its anchor; no drafter has longer blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSettings:
    """Settings of one target.

    Raises:
        PacelineError: A value is out of range; the field is named.
    """

    # Model
    model: str
    """Folder of the checkpoint."""
    model_name: str = "paceline-embedded"
    """Public name of the model."""
    drafter_model: str = "none"
    """Folder of the drafter's checkpoint, whose context the target holds; mtp for the head in the model's own folder,
    none for drafts that read no memory."""
    drafter_weights: str = "auto"
    """What the drafter's products read, which the memory plan of a GPU counts: int8, or numbers of dtype, as auto has
    there."""
    drafter_sample_from_anchor: Choice = "auto"
    """Whether the anchor's row of a dflash or dspark drafter predicts, as its drafter has it: true, false, or auto, as
    the file says, which not all files do."""
    random_weights: bool = False
    """Reads the checkpoint's configuration only and draws the weights: for measurements."""
    synthetic_acceptance: tuple[float, ...] = ()
    """Rates by position at which drafts are accepted, falling, with random_weights only: for measurements."""
    synthetic_siblings: tuple[float, ...] = ()
    """Of trees, the rates at which a second child is accepted where the first one is not, a third one, and so on; first
    children are accepted as drafts of their depth are. With synthetic_acceptance only."""
    device: str = "cpu"
    """cpu or cuda."""
    dtype: str = "float32"
    """Type of the weights: float32, float64, or on a GPU bfloat16."""
    activations: str = _AUTO
    """What products read: auto rows in dtype; int8 rows rounded to eight bits, each by its own largest number, by whole
    numbers of a compressed-tensors file that is int-quantized; fp8 rows rounded to e4m3 in groups, by codes of a file
    whose FP8 has scales of blocks, as vLLM and SGLang multiply it. Its text is another; drafts do not change it."""
    threads: int = 1
    """Threads of one forward on a CPU; 0 takes one for each core."""
    core: int = -1
    """Core that the engine's thread stays on; -1 leaves it to the system."""
    fp8_products: Choice = "auto"
    """Multiplies few rows by codes of FP8 files, and any by those of experts, on an H100 or H200: true, false, or auto,
    where codes and their numbers take at most half of the pair's memory together. Else weights are widened at load."""
    int4_products: Choice = "auto"
    """The same of files in four bits whose groups have 128 inputs."""
    keep_widened: bool = True
    """Of a model that is multiplied by its codes: keeps the widened numbers beside them, by which rounds of more than
    32 rows are quicker. Off, with true above: it takes the codes' memory alone, a half or a quarter of the numbers'."""
    compile_threads: int = 16
    """Threads, or as many as there are processors, that compile kernels before steps are captured on a GPU; 1 compiles
    each when it is met."""
    eager: bool = False
    """Runs every step without a CUDA graph."""
    exact: str = "fallback"
    """Where a GPU's rows differ by shape: fallback takes own kernels, strict refuses to start, off does not compare."""

    # Memory
    slots: int = 8
    """Requests that run at once."""
    context_limit: int = 0
    """Most tokens of a prompt and its output; 0 takes the model's. It is no more than the memory holds."""
    kv_dtype: str = _AUTO
    """What keys and values are kept in: auto in dtype, int8 in eight bits with a power of two for each token and head.
    int8 has room for twice as many tokens as bfloat16. Its text is another, the same with drafts and without."""
    blocks: int = 0
    """Blocks of K/V; 0 derives them from the memory."""
    block_size: int = 16
    """Tokens of a block."""
    memory_bytes: int = 0
    """Bytes that the pair may hold, weights included. 0 takes memory_fraction, on a CPU 512 MiB beside the weights."""
    expert_bytes: int = 0
    """Bytes that a mixture's experts may take of a GPU. It reads the others in its machine's memory, and they change
    places by use. 0: all experts."""
    memory_fraction: float = 0.9
    """Part of a GPU that the pair may fill."""
    prefix_cache: bool = True
    """Keeps the K/V of prompts for later ones that begin alike."""
    snapshots: int = 0
    """Snapshots of recurrent states, from which hybrids go on where prompts begin alike; 0 takes one for each slot."""

    # Scheduling
    widths: tuple[int, ...] = ()
    """Widths of rounds in tokens, ascending from 1; empty: `1,4,8` on a CPU, and `1,4,6,8,12,16` on a GPU if
    they fit."""
    ragged: bool = False
    """Rounds may share rows over requests: each verifies as many drafts as it is likely to accept. Without nodes, of
    models without recurrent layers, and of drafters that draft in one pass; widths are chosen for it."""
    nodes: bool = False
    """Rounds may check trees of drafts beside chains, whichever brings more; with a drafter's checkpoint. Trees have as
    many nodes as widths of eight and more say, on a CPU of four and more, else the widest; empty: 8 and 16. On a CPU
    some have 4 then."""
    adaptive: bool = True
    """Chooses the width of every round by measured cost and acceptance; false always takes the widest."""
    prefill_chunk: int = 0
    """Most prompt tokens of a round. 0 takes the device's: 128 on a CPU, 2,048 on a GPU. A burst there has twice that.
    Where latency is preferred, all is a quarter."""
    prefer: str = THROUGHPUT
    """`throughput` or `latency`: whether prompts are computed in large packs, for which requests that decode wait up to
    0.12 s, or in small ones beside which they go on."""
    preemption: Choice = "auto"
    """Who gets K/V blocks as it grows and waits again where they run out: true all, false none, auto if unlimited."""
    max_waiting: int = 256
    """Requests in the queue; more are refused."""
    max_queued_tokens: int = 0
    """Prompt tokens in the queue; 0 takes what some ten seconds can prefill."""
    default_max_tokens: int = 256
    """Tokens generated for a request that names no limit."""
    max_request_s: float = 600.0
    """Longest time of one request."""
    outbox_frames: int = 1024
    """Frames kept for a gateway that does not read; beyond them its session ends."""

    # Drafter
    drafter_address: str = ""
    """Address of the drafter; empty runs without speculation."""
    require_drafter: bool = True
    """Takes no work before the first drafter is attached."""
    kill_quarantined: bool = True
    """Kills a drafter on this host whose drafts are late, so that it is started again."""
    handoff: str = _AUTO
    """How drafts are asked for: flags, host or wire. auto takes flags on a GPU and the side socket on a CPU."""
    drafter_memory: str = "shared"
    """shared: the drafter maps the arena. none: it runs elsewhere, by handoff wire, with drafts that read no memory."""
    watchdog_s: float = 0.0
    """Seconds without drafts after which the drafter is dropped; 0 takes 1 s on a CPU, a quarter of one on a GPU."""
    drafter_tls_cert: str = ""
    """PEM certificate shown to a drafter on another host."""
    drafter_tls_key: str = ""
    """Key of drafter_tls_cert."""
    drafter_tls_ca: str = ""
    """PEM certificate that signed the drafter's."""
    drafter_tls_name: str = ""
    """Name that the drafter's certificate states, if that is not its address."""

    # Listeners
    grpc: str = ""
    """Address for gateways; empty makes a Unix socket below run_dir, which only this user can reach."""
    health: str = "127.0.0.1:0"
    """Address of the plaintext health service."""
    metrics: str = "127.0.0.1:0"
    """Address of the page of metrics."""
    run_dir: str = ""
    """Folder of sockets; empty makes a temporary one."""

    # Access
    tls_cert: str = ""
    """PEM certificate of the gRPC listener; empty serves plaintext."""
    tls_key: str = ""
    """Key of tls_cert."""
    tls_ca: str = ""
    """PEM certificate that must have signed those of gateways; over TCP this, session_secret or insecure is needed."""
    target_client_names: tuple[str, ...] = ()
    """DNS names of which a gateway's certificate must state one; empty: those of tls_cert."""
    session_secret: str = field(default="", repr=False, metadata={"secret": True})
    """Secret that gateways must send, at least 16 characters."""
    session_secret_file: str = ""
    """File with that secret, which is followed: when it changes, the secret before is taken for ten minutes too."""
    insecure: bool = False
    """Lets anybody who reaches a TCP listener use the target."""

    # Running
    pair_id: str = "pair-0"
    """Name of the pair."""
    drain_grace_s: float = 10.0
    """Seconds that running requests have when the target is told to end; then they move to another one."""
    propagation_s: float = 0.5
    """Seconds between NOT_SERVING and the refusal of new requests, for watchers to notice."""
    stall_s: float = 3.0
    """Seconds without a step, while there is work, after which the target is not live."""
    log_level: str = "info"
    """Lowest level that is logged."""
    trace_rounds: float = 0.0
    """Share of traced requests of which each round is a span of its own, for debugging; of others it is an event."""

    def __post_init__(self) -> None:
        """Refuses values that no target can run with."""
        _require(self.model != "", "model", "a checkpoint folder is needed")
        self._check_names()
        self._check_synthetic()
        self._check_eight_bits()
        self._check_device()
        self._check_shared_memory()
        self._check_rounds()
        self._check_access()
        for name in _NOT_NEGATIVE:
            _require(getattr(self, name) >= 0, name, "must not be negative")
        for name in ("max_waiting", "default_max_tokens", "max_request_s", "stall_s"):
            _require(getattr(self, name) > 0, name, "must be positive")

    def _check_names(self) -> None:
        for name, known in _KNOWN.items():
            _require(getattr(self, name) in known, name, f"must be one of {', '.join(known)}")
        _require(self.prefer in (THROUGHPUT, LATENCY), "prefer", f"must be {THROUGHPUT} or {LATENCY}")

    def _check_device(self) -> None:
        on_gpu = self.device == "cuda"
        # There the order of a sum follows the number of rows, and eight bits show it.
        _require(on_gpu or self.dtype != "bfloat16", "dtype", "bfloat16 is not exact on a CPU: take float32")
        _require(on_gpu or self.exact != "strict", "exact", "strict compares rows on a GPU only")
        _require(on_gpu or self.handoff != HandoffMode.FLAGS, "handoff", "flags order the streams of a GPU")
        _require(self.compile_threads >= 1, "compile_threads", "must be 1 or more")
        _require(self.core >= -1, "core", "must be a core's number, or -1 for any")

    def _check_shared_memory(self) -> None:
        if self.shares_memory:
            return
        _require(self.handoff in (_AUTO, HandoffMode.WIRE), "handoff", "without shared memory only wire")
        needed = "a dflash drafter reads the target's memory; without it only n-gram drafts, with drafter_model none"
        _require(self.drafter_model == "none", "drafter_memory", needed)

    def _check_rounds(self) -> None:
        _require(1 <= self.slots <= 1024, "slots", "must be in [1, 1024]")
        _require(self.block_size >= 1, "block_size", "must be at least 1")
        ascending = all(low < high for low, high in zip(self.widths, self.widths[1:], strict=False))
        _require(not self.widths or (self.widths[0] == 1 and ascending), "widths", "must ascend from 1")
        _require(not self.widths or self.widths[-1] <= WIDEST, "widths", f"must be {WIDEST} at most")
        _require(0.0 < self.memory_fraction <= 1.0, "memory_fraction", "must be in (0, 1]")
        _require(0.0 <= self.trace_rounds <= 1.0, "trace_rounds", "must be in [0, 1]")
        _require(self.outbox_frames >= 1, "outbox_frames", "must be at least 1")

    def _check_access(self) -> None:
        _require(bool(self.tls_cert) == bool(self.tls_key), "tls_cert", "needs tls_key beside")
        _require(self.tls_cert != "" or not self.tls_ca, "tls_ca", "needs tls_cert and tls_key")
        check_secret("session_secret", self.session_secret, self.session_secret_file)
        secret = self.session_secret or self.session_secret_file
        _require(guarded(self.grpc, self.tls_ca, secret, self.insecure), "grpc", _OPEN)

    def _check_synthetic(self) -> None:
        rates = self.synthetic_acceptance
        falling = all(1.0 >= low >= high >= 0.0 for low, high in zip((1.0, *rates), rates, strict=False))
        _require(falling, "synthetic_acceptance", "rates must fall from 1 to 0")
        _require(not rates or self.random_weights, "synthetic_acceptance", "is for random weights only")
        siblings = self.synthetic_siblings
        _require(all(0.0 <= rate <= 1.0 for rate in siblings), "synthetic_siblings", "rates must be in [0, 1]")
        _require(not siblings or bool(rates), "synthetic_siblings", "needs synthetic_acceptance")

    def _check_eight_bits(self) -> None:
        wide = self.device == "cuda" and self.dtype != "bfloat16"
        _require(not (self.rounds and wide), "activations", "int8 and fp8 go with dtype bfloat16 on a GPU")
        _require(not (self.coded and wide), "kv_dtype", "int8 goes with dtype bfloat16 on a GPU")

    @property
    def code_bits(self) -> dict[int, str]:
        """By bits of codes whether products multiply by them: true, false or auto."""
        return {8: self.fp8_products, 4: self.int4_products}

    @property
    def rounds(self) -> bool:
        """Whether rows are rounded to eight bits before they are multiplied."""
        return self.activations != _AUTO

    @property
    def coded(self) -> bool:
        """Whether keys and values are codes of eight bits."""
        return self.kv_dtype == _CODES

    @property
    def held_snapshots(self) -> int:
        """Places for snapshots of a model with recurrent states; none without the prefix cache, which names them."""
        return (self.snapshots or self.slots) if self.prefix_cache else 0

    @property
    def drafter_folder(self) -> str:
        """Where the drafter's checkpoint is."""
        return self.model if self.drafter_model == OWN_HEAD else self.drafter_model

    @property
    def speculates(self) -> bool:
        """Whether a drafter is expected."""
        return self.drafter_address != "" and self.widths != (1,)

    @property
    def shares_memory(self) -> bool:
        """Whether the drafter maps the arena."""
        return self.drafter_memory == "shared"

    @property
    def handoff_mode(self) -> HandoffMode:
        """The mode that drafters are offered: the one that is set, else flags on a GPU and the side socket on a CPU."""
        if not self.shares_memory:
            return HandoffMode.WIRE
        if self.handoff != _AUTO:
            return HandoffMode(self.handoff)
        return HandoffMode.FLAGS if self.device == "cuda" else HandoffMode.SOCKET

    @property
    def draft_widths(self) -> tuple[int, ...]:
        """Widths of rounds, as far as the drafter can fill them."""
        return self.widths or ((1, 4, 6, 8, 12, 16) if self.device == "cuda" else self.fewer_widths)

    @property
    def fewer_widths(self) -> tuple[int, ...]:
        """Those that are left where graphs for all of them would take too much of the memory for K/V."""
        return self.widths or ((1, 4, 8, 16) if self.device == "cuda" else (1, 4, 8))

    @property
    def tree_widths(self) -> tuple[int, ...]:
        """Nodes that rounds of trees may have, as far as the drafter can fill them."""
        if not self.nodes or not self.widths:
            return _NODES[self.device] if self.nodes else ()
        return tuple(width for width in self.widths if width >= _NODES[self.device][0]) or self.widths[1:][-1:]

    @property
    def chunk_tokens(self) -> int:
        """Most prompt tokens of a round in which requests decode."""
        return self.prefill_chunk or self._packs.chunk

    @property
    def pack_tokens(self) -> int:
        """Most prompt tokens of a round in which nothing decodes, if memory allows."""
        return self.prefill_chunk or self._packs.burst

    @property
    def pause_s(self) -> float:
        """Seconds for which requests that decode may wait for the prompts of a burst."""
        return PAUSE_S if self.prefer == THROUGHPUT else 0.0

    @property
    def _packs(self) -> Packs:
        return _PACKS[self.device == "cuda", self.prefer]

    @property
    def queued_tokens(self) -> int:
        """Most prompt tokens that may wait: as set, else some ten seconds of work."""
        return self.max_queued_tokens or (1 << 19 if self.device == "cuda" else 1 << 16)

    @property
    def watchdog(self) -> float:
        """Seconds without an answer after which a drafter is quarantined."""
        return self.watchdog_s or (0.25 if self.device == "cuda" else 1.0)


def _require(condition: bool, field: str, message: str) -> None:
    if not condition:
        raise invalid_field(field, message)
