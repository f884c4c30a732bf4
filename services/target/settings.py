"""Settings of a target: one frozen value, validated once."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.common.pair.handoff import HandoffMode
from services.common.request.errors import invalid_field
from services.common.serving.callers import guarded

_DTYPES = ("float32", "float64", "bfloat16")
_DEVICES = ("cpu", "cuda")
_AUTO = "auto"
_HANDOFFS = (_AUTO, HandoffMode.FLAGS, HandoffMode.HOST, HandoffMode.WIRE)
_MEMORIES = ("shared", "none")
_SECRET = 16
_SHORT = f"must have at least {_SECRET} characters"
_OPEN = "over TCP anybody could call: give tls_ca or session_secret, or say insecure; unix:/path needs none of them"
_NOT_NEGATIVE = (
    "threads",
    "context_limit",
    "blocks",
    "memory_bytes",
    "prefill_chunk",
    "max_queued_tokens",
    "watchdog_s",
    "drain_grace_s",
    "propagation_s",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSettings:
    """Settings of one target; sizes are tokens, blocks or bytes as named, times are seconds.

    Zero or nothing means "derive it": ``threads`` from the machine, ``context_limit`` from the model, ``blocks``
    from the memory, ``widths``, ``prefill_chunk``, ``max_queued_tokens`` and ``watchdog_s`` from the device.
    ``memory_bytes`` is for all that the pair holds, weights included; without it ``memory_fraction`` of a GPU is
    taken, or 512 MiB beside a CPU's weights. ``eager`` runs every step without a CUDA graph. With ``tls_cert`` and
    ``tls_key`` the gRPC listener speaks TLS, and with ``tls_ca`` gateways must present a certificate that it
    signed. ``drafter_memory`` "none" is for a drafter in another container or on another host: nothing is shared with
    it, hand-off is by wire, and only drafts that need no memory are possible. The ``drafter_tls`` files are for the
    connection to such a drafter, whose certificate states ``drafter_tls_name`` if that is not its address.

    ``grpc`` empty listens on a Unix socket below ``run_dir``, which only this user can reach. Over TCP gateways must
    prove that they are some: by a certificate that ``tls_ca`` signed and that states one of ``target_client_names`` (by
    default the DNS names of ``tls_cert``), or by ``session_secret``, or by both. ``insecure`` takes anybody.

    Raises:
        PacelineError: A value is out of range; the field is named.
    """

    model: str
    drafter_model: str = "none"
    random_weights: bool = False
    synthetic_acceptance: tuple[float, ...] = ()
    drafter_address: str = ""
    pair_id: str = "pair-0"
    model_name: str = "paceline-embedded"
    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 1
    core: int = -1
    slots: int = 8
    context_limit: int = 0
    blocks: int = 0
    memory_bytes: int = 0
    memory_fraction: float = 0.9
    block_size: int = 16
    widths: tuple[int, ...] = ()
    prefill_chunk: int = 0
    max_waiting: int = 256
    max_queued_tokens: int = 0
    default_max_tokens: int = 256
    max_request_s: float = 600.0
    prefix_cache: bool = True
    preemption: bool = False
    adaptive: bool = True
    eager: bool = False
    require_drafter: bool = True
    kill_quarantined: bool = True
    handoff: str = _AUTO
    drafter_memory: str = "shared"
    watchdog_s: float = 0.0
    outbox_frames: int = 1024
    drain_grace_s: float = 10.0
    propagation_s: float = 0.5
    stall_s: float = 3.0
    run_dir: str = ""
    grpc: str = ""
    health: str = "127.0.0.1:0"
    metrics: str = "127.0.0.1:0"
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""
    target_client_names: tuple[str, ...] = ()
    session_secret: str = field(default="", repr=False, metadata={"secret": True})
    insecure: bool = False
    drafter_tls_cert: str = ""
    drafter_tls_key: str = ""
    drafter_tls_ca: str = ""
    drafter_tls_name: str = ""
    log_level: str = "info"

    def __post_init__(self) -> None:
        """Refuses values that no target can run with."""
        _require(self.model != "", "model", "a checkpoint folder is needed")
        _require(self.device in _DEVICES, "device", f"must be one of {', '.join(_DEVICES)}")
        rates = self.synthetic_acceptance
        falling = all(1.0 >= low >= high >= 0.0 for low, high in zip((1.0, *rates), rates, strict=False))
        _require(falling, "synthetic_acceptance", "rates must fall from 1 to 0")
        _require(not rates or self.random_weights, "synthetic_acceptance", "is for random weights only")
        _require(self.dtype in _DTYPES, "dtype", f"must be one of {', '.join(_DTYPES)}")
        _require(self.handoff in _HANDOFFS, "handoff", f"must be one of {', '.join(_HANDOFFS)}")
        on_gpu = self.device == "cuda"
        _require(on_gpu or self.handoff != HandoffMode.FLAGS, "handoff", "flags order the streams of a GPU")
        _require(self.drafter_memory in _MEMORIES, "drafter_memory", f"must be one of {', '.join(_MEMORIES)}")
        _require(
            self.shares_memory or self.handoff in (_AUTO, HandoffMode.WIRE),
            "handoff",
            "without shared memory only wire",
        )
        _require(
            self.shares_memory or self.drafter_model == "none",
            "drafter_memory",
            "a dflash drafter reads the target's memory; without it only n-gram drafts, with drafter_model none",
        )
        _require(1 <= self.slots <= 1024, "slots", "must be in [1, 1024]")
        _require(self.block_size >= 1, "block_size", "must be at least 1")
        ascending = all(low < high for low, high in zip(self.widths, self.widths[1:], strict=False))
        _require(not self.widths or (self.widths[0] == 1 and ascending), "widths", "must ascend from 1")
        _require(0.0 < self.memory_fraction <= 1.0, "memory_fraction", "must be in (0, 1]")
        _require(self.outbox_frames >= 1, "outbox_frames", "must be at least 1")
        _require(bool(self.tls_cert) == bool(self.tls_key), "tls_cert", "needs tls_key beside")
        _require(self.tls_cert != "" or not self.tls_ca, "tls_ca", "needs tls_cert and tls_key")
        _require(len(self.session_secret) >= _SECRET or not self.session_secret, "session_secret", _SHORT)
        _require(guarded(self.grpc, self.tls_ca, self.session_secret, self.insecure), "grpc", _OPEN)
        _require(self.core >= -1, "core", "must be a core's number, or -1 for any")
        for name in _NOT_NEGATIVE:
            _require(getattr(self, name) >= 0, name, "must not be negative")
        for name in ("max_waiting", "default_max_tokens", "max_request_s", "stall_s"):
            _require(getattr(self, name) > 0, name, "must be positive")

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
        """What drafters are offered: unless one is asked for, flags on a GPU and the side socket on a CPU."""
        if not self.shares_memory:
            return HandoffMode.WIRE
        if self.handoff != _AUTO:
            return HandoffMode(self.handoff)
        return HandoffMode.FLAGS if self.device == "cuda" else HandoffMode.SOCKET

    @property
    def draft_widths(self) -> tuple[int, ...]:
        """Widths of rounds, as far as the drafter can fill them."""
        return self.widths or ((1, 4, 8, 16) if self.device == "cuda" else (1, 4, 8))

    @property
    def chunk_tokens(self) -> int:
        """Most prompt tokens of a round."""
        return self.prefill_chunk or (2048 if self.device == "cuda" else 128)

    @property
    def queued_tokens(self) -> int:
        """Most prompt tokens that wait: some ten seconds of a GPU's work, or of a CPU's with a small model."""
        return self.max_queued_tokens or (1 << 19 if self.device == "cuda" else 1 << 16)

    @property
    def watchdog(self) -> float:
        """Seconds without an answer after which a drafter is quarantined."""
        return self.watchdog_s or (0.25 if self.device == "cuda" else 1.0)


def _require(condition: bool, field: str, message: str) -> None:
    if not condition:
        raise invalid_field(field, message)
