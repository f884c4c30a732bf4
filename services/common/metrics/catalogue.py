"""Every metric of every service."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from services.common.metrics.family import ROUND, Family, Spec, declare
from services.common.metrics.version import VERSION

DISCARDS = ("stop_string", "cancel", "epoch")
ENDS = ("stop_token", "stop_string", "length", "context", "cancelled", "deadline", "error", "moved")
REJECTS = ("INVALID_FIELD", "CONTEXT_LIMIT", "UNSUPPORTED", "OVERLOADED", "DUPLICATE", "INTERNAL")
FALLBACKS = ("none", "late", "lost", "failed")
HANDOFFS_WANTED = ("host", "socket", "flags", "wire")
HANDOFFS = ("host", "socket", "flags_timeslice", "flags_mps", "wire")
ATTACH_REFUSALS = ("ATTACH_REFUSED", "PROTOCOL", "INVALID_FIELD")
STATUSES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "RESOURCE_EXHAUSTED", "INTERNAL", "UNAVAILABLE", "UNAUTHENTICATED",
)  # fmt: skip

TARGET = (
    Spec("spec_decode_num_drafts", "counter", "Drafts verified: requests times speculative rounds."),
    Spec("spec_decode_num_draft_tokens", "counter", "Draft tokens verified."),
    Spec("spec_decode_num_accepted_tokens", "counter", "Draft tokens accepted."),
    Spec(
        "spec_decode_num_accepted_tokens_per_pos",
        "counter",
        "Draft tokens accepted by position in the draft, counted from 0.",
        ("position",),
    ),
    Spec("committed_tokens", "counter", "Tokens committed by rounds and prefills."),
    Spec("emitted_tokens", "counter", "Committed tokens that became part of an answer."),
    Spec("discarded_tokens", "counter", "Committed tokens that did not.", ("reason",), values=DISCARDS),
    Spec("prompt_tokens", "counter", "Prompt tokens of admitted requests."),
    Spec("cached_prompt_tokens", "counter", "Prompt tokens served from the prefix cache."),
    Spec("prefix_cache_evictions", "counter", "Blocks evicted from the prefix cache."),
    Spec("requests", "counter", "Requests ended, by reason.", ("finish_reason",), values=ENDS),
    Spec("rejects", "counter", "Requests refused, by reason.", ("reason",), values=REJECTS),
    Spec("rounds", "counter", "Rounds by width; 1 is plain.", ("width",)),
    Spec(
        "fallback_rounds",
        "counter",
        "Rounds that wanted drafts and had none, by reason.",
        ("reason",),
        values=FALLBACKS,
    ),
    Spec("preemptions", "counter", "Requests preempted."),
    Spec("graph_captures", "counter", "Step signatures captured."),
    Spec("graph_replays", "counter", "Steps replayed."),
    Spec("graph_recaptures", "counter", "Captures after warm-up; 0 when healthy."),
    Spec("graph_capture_seconds", "gauge", "Seconds that capturing took."),
    Spec("graph_held_bytes", "gauge", "Memory of a GPU that captured steps keep between their kernels."),
    Spec("arena_reallocations", "counter", "Shared or pool memory moved after warm-up; 0 when healthy."),
    Spec("drafter_attaches", "counter", "Drafters attached."),
    Spec("drafter_quarantines", "counter", "Attachments dropped, by reason.", ("reason",), values=("late", "lost")),
    Spec("errors", "counter", "Requests that failed with INTERNAL."),
    Spec("drafter_attached", "gauge", "1 while a drafter is attached."),
    Spec("attachment_generation", "gauge", "Generation of the attachment."),
    Spec("handoff_mode", "gauge", "1 for the hand-off in use.", ("mode",), values=HANDOFFS),
    Spec("handoff_wanted", "gauge", "1 for the hand-off that is wanted.", ("mode",), values=HANDOFFS_WANTED),
    Spec("running_requests", "gauge", "Requests that hold a slot."),
    Spec("waiting_requests", "gauge", "Requests in the queue."),
    Spec("queued_tokens", "gauge", "Prompt tokens that wait for prefill."),
    Spec("slots", "gauge", "Slots."),
    Spec("kv_blocks", "gauge", "K/V blocks by state.", ("state",), values=("free", "owned", "cached")),
    Spec("adaptive_width", "gauge", "Width of the latest round."),
    Spec("engine_stuck", "gauge", "1 while work is pending and no round advances."),
    Spec("ready", "gauge", "1 while the service takes work."),
    Spec("queue_seconds", "histogram", "Time in the queue."),
    Spec("prefill_seconds", "histogram", "Time from admission to the first token."),
    Spec("round_seconds", "histogram", "Time of a round.", (), ROUND),
    Spec("verify_seconds", "histogram", "Time of verify in a round.", (), ROUND),
    Spec("draft_wait_seconds", "histogram", "Time the round waited for drafts, its own work done.", (), ROUND),
    Spec(
        "handoff_seconds",
        "histogram",
        "From asking for drafts to taking them, less the drafter's own time; the host's work meanwhile counts.",
        (),
        ROUND,
    ),
    Spec("host_seconds", "histogram", "Host time of a round outside draft and verify.", (), ROUND),
)

DRAFTER = (
    Spec("drafter_rounds", "counter", "Rounds drafted."),
    Spec("drafter_attachments", "counter", "Attachments accepted."),
    Spec("drafter_refusals", "counter", "Attachments refused, by reason.", ("reason",), values=ATTACH_REFUSALS),
    Spec("drafter_ready", "gauge", "1 while the drafter can attach."),
    Spec("draft_seconds", "histogram", "Time of one draft forward.", (), ROUND),
)

GATEWAY = (
    Spec("gateway_requests", "counter", "Requests ended, by gRPC status.", ("code",), values=STATUSES),
    Spec(
        "gateway_rejects",
        "counter",
        "Requests refused before they reached a target, by reason.",
        ("reason",),
        values=("OVERLOADED", "TENANT_LIMIT"),
    ),
    Spec("gateway_delivered_tokens", "counter", "Tokens sent to clients."),
    Spec(
        "gateway_migrations",
        "counter",
        "Requests continued on another target, by cause.",
        ("cause",),
        values=("lost", "drain", "failed"),
    ),
    Spec("gateway_migration_failures", "counter", "Requests lost because no target could continue them."),
    Spec("gateway_slow_clients", "counter", "Streams ended because the client did not read."),
    Spec("gateway_inflight_requests", "gauge", "Requests in hand."),
    Spec("gateway_ready_targets", "gauge", "Targets that take work."),
    Spec("gateway_known_pairs", "gauge", "Pairs announced by the fleet sources."),
    Spec("gateway_fleet_sources", "gauge", "Fleet sources by state.", ("state",), values=("live", "stale")),
    Spec("time_to_first_token_seconds", "histogram", "From the call to the first delta sent."),
    Spec("inter_token_seconds", "histogram", "Between deltas of a stream, per token."),
    Spec("request_seconds", "histogram", "From the call to its end."),
)

PAIR_STATES = ("starting", "ready", "draining", "down", "failed")
SERVICES = ("target", "drafter")
PAIR_FAILURES = ("no_room", "straddled", "refused")

CLUSTER = (
    Spec("cluster_pairs", "gauge", "1 for the state of the pair.", ("state",), values=PAIR_STATES),
    Spec("cluster_restarts", "counter", "Times a service of the pair was restarted.", ("service",), values=SERVICES),
    Spec("cluster_placements", "counter", "Times the pair was given a place."),
    Spec(
        "cluster_failures",
        "counter",
        "Times something kept the pair from serving: no room, its services saw different GPUs, one refused to start.",
        ("reason",),
        values=PAIR_FAILURES,
    ),
)

EVERY_SERVICE = (
    Spec("event_loop_lag_seconds", "histogram", "How late the event loop runs a timer."),
    Spec("certificate_expiry_timestamp_seconds", "gauge", "When a certificate in use expires.", ("file",)),
    Spec("build_info", "gauge", "1, with the version.", ("version",)),
)


def target_metrics(registry: CollectorRegistry, model_name: str, pair: str) -> Family:
    """Metrics of a target."""
    return _family(TARGET, registry, model_name, pair)


def drafter_metrics(registry: CollectorRegistry, model_name: str, pair: str) -> Family:
    """Metrics of a drafter."""
    return _family(DRAFTER, registry, model_name, pair)


def gateway_metrics(registry: CollectorRegistry, model_name: str) -> Family:
    """Metrics of a gateway; its pair label is empty."""
    return _family(GATEWAY, registry, model_name, "")


def cluster_metrics(
    registry: CollectorRegistry, model_name: str, pairs: Iterable[str]
) -> tuple[Family, dict[str, Family]]:
    """Metrics of a controller, whose pair label is empty, and those of each of its pairs."""
    declared = declare(CLUSTER, registry)
    return _family((), registry, model_name, ""), {pair: Family(declared, model_name, pair) for pair in pairs}


def _family(specs: tuple[Spec, ...], registry: CollectorRegistry, model_name: str, pair: str) -> Family:
    """Declares the metrics, and the process_ and python_ series of the client library."""
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    family = Family(declare((*specs, *EVERY_SERVICE), registry), model_name, pair)
    family["build_info"].set(1, VERSION)
    return family
