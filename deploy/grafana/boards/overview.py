"""The overview dashboard."""

from deploy.grafana.panels import Board, Panel
from deploy.grafana.promql import MODEL, quantile, rate

MISSED = f'{MODEL},code="DEADLINE_EXCEEDED"'

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
            "Gateways",
            "short",
            "Gateways that are scraped.",
            ((f"count by (model_name) (paceline_gateway_ready_targets{{{MODEL}}})", "{{model_name}}"),),
            "gateways-absent",
            True,
        ),
        Panel(
            "Known pairs that take no work",
            "short",
            "Pairs that some gateway knows and cannot use; 0 when healthy.",
            (
                (
                    f"max by (model_name) (paceline_gateway_known_pairs{{{MODEL}}}"
                    f" - paceline_gateway_ready_targets{{{MODEL}}})",
                    "{{model_name}}",
                ),
            ),
            "pair-not-ready",
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
            "Deadline misses",
            "percentunit",
            "Share of requests that end with DEADLINE_EXCEEDED.",
            (
                (
                    f"{rate('paceline_gateway_requests_total', MISSED)}"
                    f" / ({rate('paceline_gateway_requests_total', MODEL)} > 0)",
                    "{{model_name}}",
                ),
            ),
            "deadline-misses",
        ),
        Panel(
            "Internal errors",
            "short",
            "Requests that failed with INTERNAL; 0 when healthy.",
            (
                (
                    f'sum by (model_name) (paceline_gateway_requests_total{{{MODEL},code="INTERNAL"}})',
                    "{{model_name}}",
                ),
            ),
            "internal-errors",
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
