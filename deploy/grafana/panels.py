"""What the dashboards show; knows nothing of Grafana's format."""

from dataclasses import dataclass

SELECT = 'model_name=~"$model",pair=~"$pair"'
MODEL = 'model_name=~"$model"'


@dataclass(frozen=True)
class Panel:
    """One panel: expressions are (PromQL, legend) pairs; runbook is a page of docs/operate, for panels that alert."""

    title: str
    unit: str
    description: str
    expressions: tuple[tuple[str, str], ...]
    runbook: str = ""
    single: bool = False


@dataclass(frozen=True)
class Board:
    """One dashboard; uid is stable over versions."""

    uid: str
    title: str
    description: str
    panels: tuple[Panel, ...]


def rate(metric: str, select: str = SELECT, by: str = "model_name") -> str:
    """The summed rate of a counter."""
    return f"sum by ({by}) (rate({metric}{{{select}}}[$__rate_interval]))"


def quantile(q: float, metric: str, select: str = SELECT, by: str = "model_name") -> str:
    """A quantile of a histogram."""
    inner = f"sum by ({by}, le) (rate({metric}_bucket{{{select}}}[$__rate_interval]))"
    return f"histogram_quantile({q}, {inner})"


def mean(metric: str, select: str = SELECT, by: str = "model_name") -> str:
    """The mean of a histogram."""
    total = f"sum by ({by}) (rate({metric}_sum{{{select}}}[$__rate_interval]))"
    count = f"sum by ({by}) (rate({metric}_count{{{select}}}[$__rate_interval]))"
    return f"{total} / ({count} > 0)"


ACCEPTED = rate("paceline_spec_decode_num_accepted_tokens_total")
DRAFTS = rate("paceline_spec_decode_num_drafts_total")
ACCEPTED_AT = rate("paceline_spec_decode_num_accepted_tokens_per_pos_total", by="position")
DRAFTED = rate("paceline_spec_decode_num_draft_tokens_total")

OVERVIEW = Board(
    "paceline-overview",
    "paceline / Overview",
    "Is it healthy, and what do users feel?",
    (
        Panel(
            "Ready targets",
            "short",
            "Targets that take work, as the gateways see them.",
            ((f"max by (model_name) (paceline_gateway_ready_targets{{{MODEL}}})", "{{model_name}}"),),
            "no-ready-pair",
            True,
        ),
        Panel(
            "Requests in hand",
            "short",
            "Requests that gateways are working on.",
            ((f"sum by (model_name) (paceline_gateway_inflight_requests{{{MODEL}}})", "{{model_name}}"),),
            "",
            True,
        ),
        Panel(
            "Requests by status",
            "reqps",
            "Ended requests per second by gRPC status.",
            ((rate("paceline_gateway_requests_total", MODEL, "code"), "{{code}}"),),
            "error-budget-burn",
        ),
        Panel(
            "Tokens delivered",
            "short",
            "Tokens per second that clients receive.",
            ((rate("paceline_gateway_delivered_tokens_total", MODEL), "{{model_name}}"),),
        ),
        Panel(
            "Time to first token",
            "s",
            "From the call to the first delta, at the gateway.",
            tuple(
                (quantile(q, "paceline_time_to_first_token_seconds", MODEL), f"p{int(q * 100)}")
                for q in (0.5, 0.95, 0.99)
            ),
            "slow-first-token",
        ),
        Panel(
            "Inter-token latency",
            "s",
            "Between deltas, per token, at the gateway.",
            tuple((quantile(q, "paceline_inter_token_seconds", MODEL), f"p{int(q * 100)}") for q in (0.5, 0.95, 0.99)),
        ),
        Panel(
            "Request duration",
            "s",
            "From the call to its end.",
            tuple((quantile(q, "paceline_request_seconds", MODEL), f"p{int(q * 100)}") for q in (0.5, 0.95)),
        ),
        Panel(
            "Refusals",
            "reqps",
            "Requests refused by the gateway, by reason.",
            ((rate("paceline_gateway_rejects_total", MODEL, "reason"), "{{reason}}"),),
            "queue-saturated",
        ),
    ),
)

SPECULATION = Board(
    "paceline-speculation",
    "paceline / Speculation",
    "Does speculation pay, and where does a round's time go?",
    (
        Panel(
            "Tokens per round (tau)",
            "short",
            "1 + accepted drafts / drafts verified.",
            ((f"1 + {ACCEPTED} / ({DRAFTS} > 0)", "{{model_name}}"),),
            "acceptance-collapse",
            True,
        ),
        Panel(
            "Acceptance rate",
            "percentunit",
            "Share of draft tokens that were accepted.",
            ((f"{ACCEPTED} / ({DRAFTED} > 0)", "{{model_name}}"),),
            "acceptance-collapse",
            True,
        ),
        Panel(
            "Acceptance by position",
            "percentunit",
            "Share of drafts accepted up to each position.",
            (
                (
                    f"{ACCEPTED_AT} / on () group_left () (sum ({DRAFTS}) > 0)",
                    "{{position}}",
                ),
            ),
        ),
        Panel(
            "Rounds by width",
            "short",
            "Rounds per second; width 1 is plain.",
            ((rate("paceline_rounds_total", by="width"), "W={{width}}"),),
        ),
        Panel(
            "Where a round's time goes",
            "s",
            "Means: verify, waiting for drafts, host.",
            (
                (mean("paceline_verify_seconds"), "verify"),
                (mean("paceline_draft_wait_seconds"), "draft and hand-off"),
                (mean("paceline_handoff_seconds"), "hand-off alone"),
                (mean("paceline_host_seconds"), "host"),
            ),
        ),
        Panel(
            "Drafter's own time",
            "s",
            "One draft forward, by the drafter's clock.",
            ((mean("paceline_draft_seconds"), "{{model_name}}"),),
        ),
        Panel(
            "Wasted draft tokens",
            "short",
            "Draft tokens per second that were verified and refused.",
            ((f"{DRAFTED} - {ACCEPTED}", "{{model_name}}"),),
        ),
        Panel(
            "Estimated speed-up",
            "short",
            "Tokens per round over the time of a round relative to its verify alone.",
            (
                (
                    f"(1 + {ACCEPTED} / ({DRAFTS} > 0)) * ({mean('paceline_verify_seconds')}) / "
                    f"({mean('paceline_round_seconds')})",
                    "{{model_name}}",
                ),
            ),
        ),
        Panel(
            "Fallback rounds",
            "short",
            "Rounds that wanted drafts and had none, by reason.",
            ((rate("paceline_fallback_rounds_total", by="reason"), "{{reason}}"),),
            "pair-degraded",
        ),
        Panel(
            "Hand-off mode",
            "short",
            "1 for the mode in use.",
            ((f"paceline_handoff_mode{{{SELECT}}}", "{{pair}} {{mode}}"),),
            "host-fallback",
        ),
    ),
)

CAPACITY = Board(
    "paceline-capacity",
    "paceline / Capacity",
    "How full are slots, queue and K/V?",
    (
        Panel(
            "Running and waiting",
            "short",
            "Requests that hold a slot, and requests in the queue.",
            (
                (f"sum by (pair) (paceline_running_requests{{{SELECT}}})", "{{pair}} running"),
                (f"sum by (pair) (paceline_waiting_requests{{{SELECT}}})", "{{pair}} waiting"),
            ),
            "queue-saturated",
        ),
        Panel(
            "Slots in use",
            "percentunit",
            "Share of slots that hold a request.",
            (
                (
                    f"sum by (pair) (paceline_running_requests{{{SELECT}}})"
                    f" / sum by (pair) (paceline_slots{{{SELECT}}})",
                    "{{pair}}",
                ),
            ),
        ),
        Panel(
            "K/V blocks by state",
            "short",
            "Free, owned by requests, kept by the prefix cache.",
            ((f"sum by (pair, state) (paceline_kv_blocks{{{SELECT}}})", "{{pair}} {{state}}"),),
            "kv-nearly-full",
        ),
        Panel(
            "Queued prompt tokens",
            "short",
            "Prompt tokens that wait for prefill.",
            ((f"sum by (pair) (paceline_queued_tokens{{{SELECT}}})", "{{pair}}"),),
        ),
        Panel(
            "Time in the queue",
            "s",
            "From arrival at the target to admission.",
            tuple((quantile(q, "paceline_queue_seconds"), f"p{int(q * 100)}") for q in (0.5, 0.95)),
        ),
        Panel(
            "Prefill time",
            "s",
            "From admission to the first token.",
            tuple((quantile(q, "paceline_prefill_seconds"), f"p{int(q * 100)}") for q in (0.5, 0.95)),
        ),
        Panel(
            "Prefix cache hits",
            "percentunit",
            "Share of prompt tokens served from the prefix cache.",
            (
                (
                    f"{rate('paceline_cached_prompt_tokens_total')} / ({rate('paceline_prompt_tokens_total')} > 0)",
                    "{{model_name}}",
                ),
            ),
        ),
        Panel(
            "Captures after warm-up",
            "short",
            "0 when healthy.",
            ((f"sum by (pair) (paceline_graph_recaptures_total{{{SELECT}}})", "{{pair}}"),),
            "recapture",
        ),
    ),
)

FLEET = Board(
    "paceline-fleet",
    "paceline / Fleet",
    "Which pairs are there, and how stable are they?",
    (
        Panel(
            "Pairs ready",
            "short",
            "1 while the target of a pair takes work.",
            ((f"max by (pair) (paceline_ready{{{SELECT}}})", "{{pair}}"),),
            "no-ready-pair",
        ),
        Panel(
            "Drafters attached",
            "short",
            "1 while a drafter is attached.",
            ((f"max by (pair) (paceline_drafter_attached{{{SELECT}}})", "{{pair}}"),),
            "pair-degraded",
        ),
        Panel(
            "Attachments",
            "short",
            "Drafters attached so far: steps are restarts.",
            ((f"sum by (pair) (paceline_drafter_attaches_total{{{SELECT}}})", "{{pair}}"),),
            "restart-loop",
        ),
        Panel(
            "Quarantines",
            "short",
            "Attachments dropped, by reason.",
            ((f"sum by (pair, reason) (paceline_drafter_quarantines_total{{{SELECT}}})", "{{pair}} {{reason}}"),),
        ),
        Panel(
            "Migrations",
            "short",
            "Requests per second that continued on another target, by cause.",
            ((rate("paceline_gateway_migrations_total", MODEL, "cause"), "{{cause}}"),),
        ),
        Panel(
            "Event loop lag",
            "s",
            "How late event loops run, p99.",
            ((quantile(0.99, "paceline_event_loop_lag_seconds", MODEL, "job"), "{{job}}"),),
        ),
        Panel(
            "Versions",
            "short",
            "Services by version.",
            ((f"count by (version) (paceline_build_info{{{MODEL}}})", "{{version}}"),),
        ),
    ),
)

BOARDS = (OVERVIEW, SPECULATION, CAPACITY, FLEET)
