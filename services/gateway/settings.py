"""Settings of a gateway: one frozen value, validated once."""

from dataclasses import dataclass, field

from services.common.request.errors import invalid_field

POSITIVE = (
    "max_requests",
    "max_queued_tokens",
    "max_request_s",
    "default_max_tokens",
    "attempts",
    "outbox_tokens",
    "dns_interval_s",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Settings of one gateway; times are seconds.

    Pairs come from any of `watch` (addresses of fleet controllers), `watch_dns` (a host:port that resolves to all
    controllers), `targets` (addresses of targets) and `dns` (a host:port that resolves to all targets). `model` empty
    serves whatever the first target does. `tenants` is a TOML file of tenants; empty means that everybody may call. The
    `tls` files are the gateway's own, with a `tls_ca` clients must present certificates; the `target_tls` files are for
    its connections to targets and controllers, whose certificates state `target_tls_name` if that is not their address.
    `target_secret` is the `session_secret` of the targets.

    `Usage.cached_tokens` tells what others asked where all share one prefix cache: without tenants it is 0 unless
    `report_cached_tokens` asks for it.

    `vllm_engine` also serves the contract vllm.grpc.engine.VllmEngine, for public gateways that speak it; it needs the
    package smg-grpc-proto.

    Raises:
        PacelineError: a value is out of range; the field is named.
    """

    tokenizer: str
    watch: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    watch_dns: str = ""
    dns: str = ""
    dns_interval_s: float = 5.0
    model: str = ""
    tenants: str = ""
    tls_cert: str = ""
    tls_key: str = field(default="", metadata={"secret": True})
    tls_ca: str = ""
    target_tls_cert: str = ""
    target_tls_key: str = field(default="", metadata={"secret": True})
    target_tls_ca: str = ""
    target_tls_name: str = ""
    target_secret: str = field(default="", repr=False, metadata={"secret": True})
    max_requests: int = 512
    max_queued_tokens: int = 1 << 19
    max_request_s: float = 600.0
    default_max_tokens: int = 256
    wait_target_s: float = 30.0
    attempts: int = 8
    outbox_tokens: int = 4096
    vllm_engine: bool = False
    report_cached_tokens: bool = False
    drain_grace_s: float = 30.0
    propagation_s: float = 0.5
    grpc: str = "127.0.0.1:0"
    health: str = "127.0.0.1:0"
    metrics: str = "127.0.0.1:0"
    log_level: str = "info"

    def __post_init__(self) -> None:
        """Refuses values that no gateway can run with."""
        if not self.tokenizer:
            raise invalid_field("tokenizer", "a folder with tokenizer.json is needed")
        if not (self.watch or self.watch_dns or self.targets or self.dns):
            raise invalid_field("watch", "one of watch, watch_dns, targets and dns is needed")
        for name in ("dns", "watch_dns"):
            if getattr(self, name) and not getattr(self, name).rpartition(":")[2].isdigit():
                raise invalid_field(name, "must be host:port")
        if bool(self.tls_cert) != bool(self.tls_key) or (self.tls_ca and not self.tls_cert):
            raise invalid_field("tls_cert", "needs tls_key beside, and tls_ca needs both")
        for name in POSITIVE:
            if not (getattr(self, name) > 0):
                raise invalid_field(name, "must be positive")
        for name in ("wait_target_s", "drain_grace_s", "propagation_s"):
            if not (getattr(self, name) >= 0):
                raise invalid_field(name, "must not be negative")
