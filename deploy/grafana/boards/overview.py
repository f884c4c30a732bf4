"""The overview dashboard."""

from deploy.grafana.panels import BAD, OK, WARN, Board, Panel
from deploy.grafana.promql import BY, MODEL, NAMED, SELECT, buckets, grown, quantile, rate, share

REQUESTS = "paceline_gateway_requests_total"
FIRST = "paceline_time_to_first_token_seconds"
ASKED = f'{MODEL},endpoint=~".*(Generate|completions|responses|messages)"'
SOON = f'{MODEL},le="2.5"'
MISSED = f'{ASKED},code="DEADLINE_EXCEEDED"'
OURS = f'{MODEL},reason=~"OVERLOADED|TENANT_LIMIT|NO_TARGET|TARGET_LOST|DRAINING|DEADLINE|INTERNAL"'
FAILED = f'{ASKED},code=~"INTERNAL|UNKNOWN|UNAVAILABLE"'
INTERNAL = f'{MODEL},code="INTERNAL"'
THEIRS = (
    f'{MODEL},code=~"INVALID_ARGUMENT|UNAUTHENTICATED|PERMISSION_DENIED|NOT_FOUND|ALREADY_EXISTS'
    '|FAILED_PRECONDITION|OUT_OF_RANGE|UNIMPLEMENTED|RESOURCE_EXHAUSTED"'
)
SERVER = f'{MODEL},code=~"INTERNAL|UNKNOWN|UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|DATA_LOSS"'


def month(select: str) -> str:
    """Requests that ended within 30 days."""
    return f"sum by ({BY}) (increase({REQUESTS}{{{select}}}[30d]))"


COME, REFUSED = rate(f"{FIRST}_count", MODEL), rate("paceline_gateway_rejects_total", OURS)
GOODPUT = share(rate(f"{FIRST}_bucket", SOON), f"({COME} + ({REFUSED} or 0 * {COME}))")
BUDGET = f"1 - {month(FAILED)} / ({month(ASKED)} > 0) / 0.001"

OVERVIEW = Board(
    "paceline-overview",
    "paceline / Overview",
    "Is it healthy, and what do users feel?",
    (
        Panel(
            "SLO of first tokens: share within 2.5 s, red below 95 %",
            "percentunit",
            "The latest value of the curve below.",
            ((GOODPUT, NAMED),),
            runbook="slow-first-token",
            single=True,
            steps=((0.95, OK),),
        ),
        Panel(
            "SLO of answers (99.9 %): error budget left, red below 0 %",
            "percentunit",
            "The latest value of the curve below.",
            ((BUDGET, NAMED),),
            runbook="error-budget-burn",
            single=True,
            steps=((0, WARN), (0.25, OK)),
            least=None,
        ),
        Panel(
            "Ready targets",
            "short",
            "Pairs that take work, as the gateway that sees fewest sees them.",
            ((f"min by ({BY}) (paceline_gateway_ready_targets{{{MODEL}}})", NAMED),),
            runbook="no-ready-pair",
            single=True,
            steps=((1, OK),),
        ),
        Panel(
            "Known pairs that take no work",
            "short",
            "Pairs that some gateway knows and cannot use; 0 when healthy.",
            (
                (
                    f"max by ({BY}) (paceline_gateway_known_pairs{{{MODEL}}}"
                    f" - paceline_gateway_ready_targets{{{MODEL}}})",
                    NAMED,
                ),
            ),
            runbook="pair-not-ready",
            single=True,
            steps=((1, WARN),),
        ),
        Panel(
            "Gateways",
            "short",
            "Gateways that are scraped.",
            ((f"count by ({BY}) (paceline_gateway_ready_targets{{{MODEL}}})", NAMED),),
            runbook="gateways-absent",
            single=True,
            steps=((1, OK),),
        ),
        Panel(
            "Requests in hand",
            "short",
            "Requests that gateways are working on.",
            ((f"sum by ({BY}) (paceline_gateway_inflight_requests{{{MODEL}}})", NAMED),),
            single=True,
        ),
        Panel(
            "Goodput: first tokens within 2.5 s (SLO 95 %)",
            "percentunit",
            "Share of first tokens that came within 2.5 s, of them and of the calls that the service refused; "
            "cancelled and wrong ones do not count.",
            ((GOODPUT, NAMED),),
            runbook="slow-first-token",
            steps=((0.95, OK),),
        ),
        Panel(
            "Error budget left (SLO: 99.9 % answered in 30 days)",
            "percentunit",
            "Of 0.1 % in 30 days, or in as long as there are data; below 0 it is overspent.",
            ((BUDGET, NAMED),),
            runbook="error-budget-burn",
            steps=((0, WARN), (0.25, OK)),
            least=None,
        ),
        Panel(
            "Requests by status",
            "reqps",
            "Ended calls for text per second by gRPC status.",
            ((rate(REQUESTS, ASKED, f"{BY}, code"), "{{model_name}} {{code}}"),),
            runbook="error-budget-burn",
        ),
        Panel(
            "Failed calls: 4xx and 5xx",
            "reqps",
            "Calls per second, of any kind, that failed by what was asked (4xx over HTTP), and by the service (5xx).",
            (
                (rate(REQUESTS, THEIRS), "{{model_name}} 4xx"),
                (rate(REQUESTS, SERVER), "{{model_name}} 5xx"),
            ),
            runbook="error-budget-burn",
        ),
        Panel(
            "Deadline misses",
            "percentunit",
            "Share of requests that end with DEADLINE_EXCEEDED.",
            ((f"{rate(REQUESTS, MISSED)} / ({rate(REQUESTS, ASKED)} > 0)", NAMED),),
            runbook="deadline-misses",
            steps=((0.25, BAD),),
        ),
        Panel(
            "Internal errors",
            "short",
            "Requests that failed with INTERNAL within a step; 0 when healthy.",
            ((grown(REQUESTS, INTERNAL), NAMED),),
            runbook="internal-errors",
            steps=((1, WARN),),
        ),
        Panel(
            "Tokens delivered",
            "tps",
            "Tokens per second that clients receive.",
            ((rate("paceline_gateway_delivered_tokens_total", MODEL), NAMED),),
        ),
        Panel(
            "Time to first token",
            "s",
            "From the call to the first delta, at the gateway.",
            (
                (quantile(0.5, FIRST, MODEL), "{{model_name}} p50"),
                (quantile(0.95, FIRST, MODEL), "{{model_name}} p95"),
                (quantile(0.99, FIRST, MODEL), "{{model_name}} p99"),
            ),
            runbook="slow-first-token",
            steps=((2, WARN),),
        ),
        Panel(
            "First tokens by latency",
            "s",
            "How many first tokens came after how long.",
            ((buckets(FIRST, MODEL), "{{le}}"),),
            heatmap=True,
        ),
        Panel(
            "Inter-token latency",
            "s",
            "Time of a token after the first, at the gateway; tokens that come together share it equally.",
            (
                (quantile(0.5, "paceline_inter_token_seconds", MODEL), "{{model_name}} p50"),
                (quantile(0.95, "paceline_inter_token_seconds", MODEL), "{{model_name}} p95"),
                (quantile(0.99, "paceline_inter_token_seconds", MODEL), "{{model_name}} p99"),
            ),
            runbook="token-gaps",
            steps=((0.5, WARN),),
        ),
        Panel(
            "Tokens by latency",
            "s",
            "How many tokens after the first took how long.",
            ((buckets("paceline_inter_token_seconds", MODEL), "{{le}}"),),
            heatmap=True,
        ),
        Panel(
            "Request duration",
            "s",
            "From the call to its end.",
            (
                (quantile(0.5, "paceline_request_seconds", MODEL), "{{model_name}} p50"),
                (quantile(0.95, "paceline_request_seconds", MODEL), "{{model_name}} p95"),
            ),
        ),
        Panel(
            "Finish reasons",
            "reqps",
            "Requests that targets ended, by reason.",
            ((rate("paceline_requests_total", SELECT, "finish_reason"), "{{finish_reason}}"),),
        ),
        Panel(
            "Refusals",
            "reqps",
            "Requests refused, by reason: before they reached a target, and by targets.",
            (
                (rate("paceline_gateway_rejects_total", MODEL, f"{BY}, reason"), "{{model_name}} gateway {{reason}}"),
                (rate("paceline_rejects_total", SELECT, "reason"), "target {{reason}}"),
            ),
            runbook="queue-saturated",
        ),
        Panel(
            "Slow clients",
            "reqps",
            "Streams ended because the client did not read.",
            ((rate("paceline_gateway_slow_clients_total", MODEL), NAMED),),
        ),
    ),
)
