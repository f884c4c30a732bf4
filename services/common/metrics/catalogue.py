"""Every metric of every service; an attribute's name is the metric's, less paceline_."""

from collections.abc import Iterable
from typing import Any, Self

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from services.common.metrics.declare import LENGTH, ROUND, Declared, Metric, MetricSet, counter, gauge, histogram
from services.common.metrics.version import VERSION

DISCARDS = ("stop_string", "cancel", "epoch")
ENDS = ("stop_token", "stop_string", "length", "context", "cancelled", "deadline", "error", "moved")
REJECTS = ("INVALID_FIELD", "CONTEXT_LIMIT", "UNSUPPORTED", "OVERLOADED", "DUPLICATE", "INTERNAL")
EXPERT_MEMORIES = ("device", "host")
ROUND_FAILED = "failed"
FALLBACKS = ("none", "late", "lost", ROUND_FAILED)
HANDOFFS_WANTED = ("host", "socket", "flags", "wire")
HANDOFFS = ("host", "socket", "flags_timeslice", "flags_mps", "wire")
ATTACH_REFUSALS = ("ATTACH_REFUSED", "PROTOCOL", "INVALID_FIELD")
STATUSES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "RESOURCE_EXHAUSTED", "INTERNAL", "UNAVAILABLE", "UNAUTHENTICATED",
)  # fmt: skip
GENERATING = (
    "/paceline.v1.InferenceService/Generate",
    "/paceline.v1.InferenceService/GenerateWhole",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
)
REFUSALS = (
    "INVALID_FIELD", "MALFORMED", "CONTEXT_LIMIT", "UNKNOWN_MODEL", "UNSUPPORTED", "OVERLOADED", "TENANT_LIMIT",
    "NO_TARGET", "TARGET_LOST", "DRAINING", "DEADLINE", "UNAUTHENTICATED", "DUPLICATE", "SLOW_CLIENT", "INTERNAL",
)  # fmt: skip
FINISHES = ("stop_token", "stop_string", "length", "context", "deadline")
DROPS = ("protocol", "keys", "room")
EXACT_STATES = ("equal", "mended", "differing")
KV_STATES = ("free", "owned", "cached")
SOURCE_STATES = ("live", "stale")
PAIR_STATES = ("starting", "ready", "draining", "down", "failed")
SERVICES = ("target", "drafter")
PAIR_FAILURES = ("no_room", "straddled", "refused", "unhealthy", "given_up")


class ServiceMetrics(MetricSet):
    """The metrics of every service, beside the process_ and python_ series of the client library."""

    event_loop_lag_seconds = histogram("How late the event loop runs a timer.")
    certificate_expiry_timestamp_seconds = gauge("When a certificate in use expires.", label="file")
    build_info = gauge("1, with the version.", label="version")

    def __init__(
        self,
        registry: CollectorRegistry,
        model_name: str,
        pair: str = "",
        registered: dict[Declared[Any], Metric] | None = None,
    ) -> None:
        """Declares the metrics in the registry, if it has none of ``registered``.

        ``pair`` is empty for a service that has none.
        """
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        super().__init__(registered or self.register(registry), model_name, pair)
        self.build_info[VERSION].set(1)


class TargetMetrics(ServiceMetrics):
    """The metrics of a target."""

    spec_decode_num_drafts = counter("Drafts verified: requests times speculative rounds.")
    spec_decode_num_draft_tokens = counter("Draft tokens verified.")
    spec_decode_num_accepted_tokens = counter("Draft tokens accepted.")
    spec_decode_num_accepted_tokens_per_pos = counter(
        "Draft tokens accepted by position in the draft, counted from 0.", label="position"
    )
    accepted_nodes = counter(
        "Draft tokens accepted from trees by row of the tree, the likeliest's being 1.", label="row"
    )
    accepted_children = counter(
        "Draft tokens accepted from trees by place among their parent's children, from 1 on.",
        label="child",
    )
    committed_tokens = counter("Tokens committed by rounds and prefills.")
    emitted_tokens = counter("Committed tokens that became part of an answer.")
    discarded_tokens = counter("Committed tokens that did not.", label="reason", values=DISCARDS)
    prompt_tokens = counter("Prompt tokens of admitted requests.")
    cached_prompt_tokens = counter("Prompt tokens served from the prefix cache.")
    prefix_cache_evictions = counter("Blocks evicted from the prefix cache.")
    state_snapshots = gauge("Snapshots of recurrent states that are held.")
    state_snapshot_bytes = gauge("Bytes of the snapshots that are held.")
    state_snapshot_hits = counter("Times a request went on from a snapshot: at a prefix hit, or preempted before.")
    state_snapshot_evictions = counter(
        "Snapshots given up: the least recently used, and those whose block was evicted."
    )
    expert_reads = counter(
        "Reads of an expert's weights by a forward of rows that chose it, over all layers, by the memory it lay in.",
        label="memory",
        values=EXPERT_MEMORIES,
    )
    expert_read_bytes = counter(
        "Bytes of those reads, each counted once a forward.", label="memory", values=EXPERT_MEMORIES
    )
    expert_exchanges = counter("Times an expert of the GPU and one of its machine's memory have changed places.")
    requests = counter("Requests ended, by reason.", label="finish_reason", values=ENDS)
    rejects = counter("Requests refused, by reason.", label="reason", values=REJECTS)
    rounds = counter("Rounds by width, of chains and of trees; 1 is plain.", label="width")
    tree_rounds = counter("Those of trees, by their nodes.", label="width")
    speculative_seconds = counter(
        "Time of speculative rounds that held no prefill, of buckets in which plain rounds were served."
    )
    plain_equivalent_seconds = counter(
        "Time that plain rounds of the same bucket would have taken for the tokens of those rounds, by served ones."
    )
    fallback_rounds = counter("Rounds that wanted drafts and had none, by reason.", label="reason", values=FALLBACKS)
    preemptions = counter("Requests preempted.")
    graph_captures = counter("Step signatures captured.")
    graph_replays = counter("Steps replayed.")
    graph_recaptures = counter("Captures after warm-up; 0 when healthy.")
    graph_capture_seconds = gauge("Seconds that capturing took.")
    graph_held_bytes = gauge("Memory of a GPU that captured steps keep between their kernels.")
    arena_reallocations = counter("Shared or pool memory moved after warm-up; 0 when healthy.")
    drafter_attaches = counter("Drafters attached.")
    drafter_quarantines = counter("Attachments dropped, by reason.", label="reason", values=("late", "lost"))
    errors = counter("Requests that failed with INTERNAL.")
    drafter_attached = gauge("1 while a drafter is attached.")
    attachment_generation = gauge("Generation of the attachment.")
    handoff_mode = gauge("1 for the hand-off in use.", label="mode", values=HANDOFFS)
    handoff_wanted = gauge(
        "1 for the hand-off that is wanted; 0 for each where no drafter is.", label="mode", values=HANDOFFS_WANTED
    )
    running_requests = gauge("Requests that hold a slot.")
    waiting_requests = gauge("Requests in the queue.")
    queued_tokens = gauge("Prompt tokens that wait for prefill.")
    slots = gauge("Slots.")
    kv_blocks = gauge("K/V blocks by state.", label="state", values=KV_STATES)
    adaptive_width = gauge("Width of the latest round.")
    engine_stuck = gauge("1 while work is pending and no round advances.")
    ready = gauge("1 while the service takes work.")
    numerics = gauge("1 for what the target computes with, by the digest that Describe tells.", label="digest")
    kv_dtype = gauge("1 for the type that keys and values are kept in.", label="dtype")
    exact_shapes = gauge(
        "Captured shapes by what the check at start found of their rows; 0 for each where it did not look.",
        label="state",
        values=EXACT_STATES,
    )
    queue_seconds = histogram("Time in the queue.")
    prefill_seconds = histogram("Time from admission to the first token.")
    round_seconds = histogram("Time of a round.", ROUND)
    verify_seconds = histogram("Time of verify in a round.", ROUND)
    draft_wait_seconds = histogram("Time the round waited for drafts, its own work done.", ROUND)
    handoff_seconds = histogram(
        "From asking for drafts to taking them, less the drafter's own time; the host's work meanwhile counts.", ROUND
    )
    host_seconds = histogram("Host time of a round outside draft and verify.", ROUND)


class DrafterMetrics(ServiceMetrics):
    """The metrics of a drafter."""

    drafter_rounds = counter("Rounds drafted.")
    drafter_attachments = counter("Attachments accepted.")
    drafter_refusals = counter("Attachments refused, by reason.", label="reason", values=ATTACH_REFUSALS)
    drafter_ready = gauge("1 while the drafter can attach.")
    draft_seconds = histogram("Time of one draft forward.", ROUND)


class ModelMetrics(MetricSet):
    """What a gateway counts of each model; the pair label is empty."""

    gateway_requests = counter(
        "Calls ended, over gRPC and HTTP, by what was called and gRPC status; refused ones too, wherever that was.",
        label=("endpoint", "code"),
        values=[(endpoint, code) for endpoint in GENERATING for code in STATUSES],
    )
    gateway_tenant_requests = counter("Calls ended, by tenant and gRPC status.", label=("tenant", "code"))
    gateway_rejects = counter("Calls that got an error and no token, by reason.", label="reason", values=REFUSALS)
    gateway_finishes = counter("Answers that came to their end, by reason.", label="finish_reason", values=FINISHES)
    gateway_prompt_tokens = counter("Prompt tokens of requests that have ended, by tenant.", label="tenant")
    gateway_cached_prompt_tokens = counter("Those of them found in a prefix cache, by tenant.", label="tenant")
    gateway_generation_tokens = counter(
        "Tokens that requests were sent, counted at their end, by tenant.", label="tenant"
    )
    gateway_delivered_tokens = counter("Tokens sent to clients, as they are sent.")
    gateway_migrations = counter(
        "Requests continued on another target, by cause.", label="cause", values=("lost", "drain", "failed")
    )
    gateway_migration_failures = counter("Requests lost because no target could continue them.")
    gateway_numerics_changes = counter(
        "Migrations of requests with output to a target of other numerics: a later token may be another one."
    )
    gateway_slow_clients = counter("Streams ended because the client did not read.")
    gateway_ready_targets = gauge("Targets that take work.")
    time_to_first_token_seconds = histogram("From the call to the first delta sent, by tenant.", label="tenant")
    inter_token_seconds = histogram("Time of a token after the first: of a delta's tokens each has an equal part.")
    request_seconds = histogram("From the call to its end, of calls for text.")
    request_prompt_length = histogram("Prompt tokens of a request.", LENGTH)
    request_generation_length = histogram("Tokens that a request was sent.", LENGTH)


class GatewayMetrics(ServiceMetrics, ModelMetrics):
    """The metrics of a gateway; its pair label is empty.

    A gateway of several models has a set of ModelMetrics for each. What belongs to none of them, such as calls whose
    model does not exist, has the name that stands for all of them then.
    """

    gateway_dropped_connections = counter(
        "Connections ended or turned away for what their client did or for lack of room, by reason.",
        label="reason",
        values=DROPS,
    )
    gateway_inflight_requests = gauge("Requests in hand.")
    gateway_known_pairs = gauge("Pairs announced by the fleet sources.")
    gateway_fleet_sources = gauge("Fleet sources by state.", label="state", values=SOURCE_STATES)

    def __init__(self, registry: CollectorRegistry, model_name: str, models: Iterable[str] = ()) -> None:
        """Declares the metrics in the registry; `models` are the names of several."""
        registered = self.register(registry)
        super().__init__(registry, model_name, registered=registered)
        by_model = {declared: registered[declared] for declared in ModelMetrics.declared()}
        self._each = {name: ModelMetrics(by_model, name, "") for name in models}
        if self._each:
            registered[ModelMetrics.gateway_ready_targets].remove(model_name, "")

    def of(self, model: str) -> ModelMetrics:
        """The set of a model; this one where there is one model, or none of that name."""
        return self._each.get(model, self)


class PairMetrics(MetricSet):
    """The metrics of one pair of a controller."""

    cluster_pairs = gauge("1 for the state of the pair.", label="state", values=PAIR_STATES)
    cluster_restarts = counter("Times a service of the pair was restarted.", label="service", values=SERVICES)
    cluster_placements = counter("Times the pair was given a place.")
    cluster_failures = counter(
        "Times something kept the pair from serving: no room, its services saw different GPUs, one refused to start or "
        "stayed unhealthy, the pair was given up after too many restarts.",
        label="reason",
        values=PAIR_FAILURES,
    )

    @classmethod
    def each(cls, registry: CollectorRegistry, model_name: str, pairs: Iterable[str]) -> dict[str, Self]:
        """The metrics of several pairs, declared once."""
        registered = cls.register(registry)
        return {pair: cls(registered, model_name, pair) for pair in pairs}


SETS: dict[str, type[MetricSet]] = {
    "Target": TargetMetrics,
    "Drafter": DrafterMetrics,
    "Gateway": ModelMetrics,
    "Gateway as a whole": GatewayMetrics,
    "Controller": PairMetrics,
    "Every service": ServiceMetrics,
}
"""Every set by its heading on the page of metrics."""


def every_metric() -> tuple[Declared[Any], ...]:
    """All that is declared, in the order of the page."""
    return tuple(one for each in SETS.values() for one in each.declared())
