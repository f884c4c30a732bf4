"""Settings of a gateway: one frozen value, validated once."""

import re
from dataclasses import dataclass, field

from services.common.request.errors import invalid_field
from services.common.request.limits import LIMITS
from services.common.serving.secret import check_secret
from services.gateway.model_settings import ModelSettings, aliases_by_model, chosen_by_model, listed
from services.gateway.parsing.form import chosen

POSITIVE = (
    "max_requests",
    "max_queued_tokens",
    "max_request_s",
    "default_max_tokens",
    "attempts",
    "outbox_tokens",
    "dns_interval_s",
)

MOST_END = 1024
"""Characters that close a thought; each is at most a few tokens."""
_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/\s]+")
GENERATION_CONFIGS = ("auto", "none", "vllm")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Settings of one gateway.

    Raises:
        PacelineError: a value is out of range; the field is named.
    """

    # Models and targets
    tokenizer: str = ""
    """Folder with tokenizer.json, of the only model; a gateway needs this or models."""
    model: str = ""
    """Public name of the only model, empty whatever the first target serves; of several the one of requests without."""
    models: tuple[str, ...] = ()
    """Several models by the names that their targets state, each with its tokenizer's folder: NAME=FOLDER."""
    model_aliases: tuple[str, ...] = ()
    """Further names of the model, or ALIAS=NAME of several; answers over HTTP repeat the name that was asked for."""
    watch: tuple[str, ...] = ()
    """Addresses of fleet controllers that announce pairs; a gateway needs this, watch_dns, targets or dns."""
    watch_dns: tuple[str, ...] = ()
    """host:port that resolves to all fleet controllers; several where each model has its own."""
    targets: tuple[str, ...] = ()
    """Addresses of targets."""
    dns: str = ""
    """host:port that resolves to all targets."""
    dns_interval_s: float = 5.0
    """Seconds between two resolutions of such a name."""
    revisions: tuple[str, ...] = ()
    """Weights of checkpoints, REVISION=WEIGHT by how a revision begins, for canaries; chats and keys keep theirs."""

    own_pairs: str = ""
    """How ids of pairs beside this gateway begin: they get requests first, and /metrics of http tells their load."""

    # Listeners
    grpc: str = "127.0.0.1:0"
    """Address on which clients are served over gRPC; empty is off."""
    http: str = ""
    """Address on which clients are served OpenAI's API over HTTP; empty is off."""
    http_page: bool = True
    """Serves a page for people at / of that address; its files need no key, what it asks for does."""
    tool_parser: str = ""
    """Form of the model's calls, such as hermes, or NAME=FORM of several; empty takes what a chat template shows."""
    generation_config: str = "auto"
    """Sampling where requests over HTTP state none: auto as generation_config.json says, none or vllm as OpenAI; by
    model NAME=auto."""
    http_cors_origins: tuple[str, ...] = ()
    """Origins of web pages that may call over HTTP."""
    http_hosts: tuple[str, ...] = ()
    """Names beside loopback's own that requests to a listener on loopback may state as Host; * is all."""
    health: str = "127.0.0.1:0"
    """Address of the plaintext health service."""
    metrics: str = "127.0.0.1:0"
    """Address of the page of metrics."""
    vllm_engine: bool = False
    """Also serves vllm.grpc.engine.VllmEngine, for public gateways that speak it; needs the package smg-grpc-proto."""

    # Requests
    max_requests: int = 512
    """Most admitted requests at once; more are refused."""
    max_queued_tokens: int = 1 << 19
    """Most prompt tokens that wait for their first output token; more are refused."""
    max_request_s: float = 600.0
    """Longest time of one request."""
    default_max_tokens: int = 256
    """Tokens generated for a request that names no limit."""
    wait_target_s: float = 30.0
    """Seconds that a request waits for a target that takes work."""
    free_grammars: bool = False
    """Takes grammars in Lark's or GBNF's syntax. Some would keep a target busy for ever: for trusted clients."""
    thinking_budget: int = 0
    """Most tokens of a thought in a chat that states no bound of its own; 0 is none."""
    effort_budgets: tuple[str, ...] = ("none=0", "minimal=0", "low=1024", "medium=8192")
    """The same by reasoning_effort, EFFORT=TOKENS; an effort that is not named has thinking_budget's."""
    thinking_end: str = ""
    """Text on a line of its own before </think> where a thought has reached its bound; empty writes none."""
    attempts: int = 8
    """Targets that one request is given to, one after the other, before it fails; those that drain do not count."""
    outbox_tokens: int = 4096
    """Tokens kept for a client that does not read, eight alternatives as one; beyond them its stream ends."""
    report_cached_tokens: bool = False
    """Reports Usage.cached_tokens without tenants too: it tells what others asked, who share the prefix cache."""

    # Access
    tenants: str = ""
    """TOML file of tenants; empty lets everybody call."""
    tls_cert: str = ""
    """PEM certificate of the listener for clients; empty serves plaintext."""
    tls_key: str = field(default="", metadata={"secret": True})
    """Key of tls_cert."""
    tls_ca: str = ""
    """PEM certificate that must have signed those of clients; empty asks them for none."""
    target_tls_cert: str = ""
    """PEM certificate shown to targets and controllers."""
    target_tls_key: str = field(default="", metadata={"secret": True})
    """Key of target_tls_cert."""
    target_tls_ca: str = ""
    """PEM certificate that signed those of targets and controllers; this or target_tls_cert turns TLS on."""
    target_tls_name: str = ""
    """Name that their certificates state, if that is not their address."""
    target_secret: str = field(default="", repr=False, metadata={"secret": True})
    """The session_secret of the targets."""
    target_secret_file: str = ""
    """File with that secret, which is followed; when it changes, targets that do not know it yet hear the old one."""

    # Running
    drain_grace_s: float = 30.0
    """Seconds that running streams have when the gateway is told to end."""
    propagation_s: float = 0.5
    """Seconds between NOT_SERVING and the refusal of new requests, for watchers to notice."""
    log_level: str = "info"
    """Lowest level that is logged."""
    access_log: bool = True
    """Logs one line for each call that has ended."""
    access_log_refused: float = 1.0
    """Share of refused calls that have such a line."""
    metrics_tenants: tuple[str, ...] = ()
    """Tenants that metrics name, others are one; empty names the first hundred of the tenants file."""

    def __post_init__(self) -> None:
        """Refuses values that no gateway can run with."""
        if bool(self.tokenizer) == bool(self.models):
            raise invalid_field("tokenizer", "a folder with tokenizer.json is needed, or models in its place")
        if not (self.watch or self.watch_dns or self.targets or self.dns):
            raise invalid_field("watch", "one of watch, watch_dns, targets and dns is needed")
        for name, values in (("dns", [self.dns] if self.dns else []), ("watch_dns", self.watch_dns)):
            if not all(value.rpartition(":")[2].isdigit() for value in values):
                raise invalid_field(name, "must be host:port")
        check_secret("target_secret", self.target_secret, self.target_secret_file)
        self._check_words()
        self._check_listeners()
        _ = self.revision_weights
        self._check_numbers()
        self._check_tls()

    def _check_tls(self) -> None:
        """Names the file that is given without the one that it needs."""
        if self.tls_cert and not self.tls_key:
            raise invalid_field("tls_cert", "needs tls_key beside")
        if self.tls_key and not self.tls_cert:
            raise invalid_field("tls_key", "needs tls_cert beside")
        if self.tls_ca and not self.tls_cert:
            raise invalid_field("tls_ca", "needs tls_cert and tls_key beside")

    @property
    def served(self) -> tuple[ModelSettings, ...]:
        """Each model that is served, as it is to be read and written.

        Raises:
            PacelineError: what is stated by model names none of them, or contradicts itself.
        """
        folders = listed(self.models) or {self.model: self.tokenizer}
        if self.model not in (*folders, ""):
            raise invalid_field("model", f"{self.model!r} is none of the models")
        aliases = aliases_by_model(self.model_aliases, [*folders])
        parsers = chosen_by_model("tool_parser", self.tool_parser, folders)
        configs = chosen_by_model("generation_config", self.generation_config, folders)
        return tuple(
            ModelSettings(
                name, folder, aliases[name], *(given.get(name, given.get("", "")) for given in (parsers, configs))
            )
            for name, folder in folders.items()
        )

    @property
    def revision_weights(self) -> dict[str, float]:
        """`revisions` by how they begin.

        Raises:
            PacelineError: one is not REVISION=WEIGHT with a weight of 0 or more.
        """
        weights: dict[str, float] = {}
        for item in self.revisions:
            revision, _, weight = item.partition("=")
            if not revision or not _is_weight(weight):
                raise invalid_field("revisions", f"{item!r} is not REVISION=WEIGHT with a weight of 0 or more")
            weights[revision] = float(weight)
        return weights

    @property
    def budgets(self) -> dict[str, int]:
        """`effort_budgets` by effort.

        Raises:
            PacelineError: one is not EFFORT=TOKENS with a number of tokens.
        """
        found: dict[str, int] = {}
        for item in self.effort_budgets:
            effort, _, tokens = item.partition("=")
            if not effort or not (tokens.isascii() and tokens.isdigit()) or int(tokens) > LIMITS.thinking_budget:
                raise invalid_field("effort_budgets", f"{item!r} is not EFFORT=TOKENS with a number of tokens")
            found[effort] = int(tokens)
        return found

    def _check_words(self) -> None:
        for origin in self.http_cors_origins:
            if not _ORIGIN.fullmatch(origin):
                raise invalid_field("http_cors_origins", f"{origin!r} is no origin, as https://app.example.com is")
        for one in self.served:
            chosen("", one.tool_parser)
            if one.generation_config not in ("", *GENERATION_CONFIGS):
                raise invalid_field("generation_config", f"must be one of {', '.join(GENERATION_CONFIGS)}")
        _ = self.budgets
        if not 0 <= self.thinking_budget <= LIMITS.thinking_budget:
            raise invalid_field("thinking_budget", f"must be in [0, {LIMITS.thinking_budget}]")
        if len(self.thinking_end) > MOST_END:
            raise invalid_field("thinking_end", f"has {len(self.thinking_end)} characters, at most {MOST_END} fit")

    def _check_numbers(self) -> None:
        for name in POSITIVE:
            if not (getattr(self, name) > 0):
                raise invalid_field(name, "must be positive")
        for name in ("wait_target_s", "drain_grace_s", "propagation_s"):
            if not (getattr(self, name) >= 0):
                raise invalid_field(name, "must not be negative")
        if not 0.0 <= self.access_log_refused <= 1.0:
            raise invalid_field("access_log_refused", "must be in [0, 1]")

    def _check_listeners(self) -> None:
        if not (self.grpc or self.http):
            raise invalid_field("grpc", "one of grpc and http is needed")
        if self.http and not self.http.rpartition(":")[2].isdigit():
            raise invalid_field("http", "must be host:port")
        if self.vllm_engine and not self.grpc:
            raise invalid_field("vllm_engine", "needs grpc")
        if self.vllm_engine and len(self.models) > 1 and not self.model:
            raise invalid_field("vllm_engine", "serves one model: model must name it")


def _is_weight(text: str) -> bool:
    try:
        return 0.0 <= float(text) < float("inf")
    except ValueError:
        return False
