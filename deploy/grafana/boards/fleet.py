"""The fleet dashboard."""

from deploy.grafana.panels import Board, Panel
from deploy.grafana.promql import MODEL, SELECT, quantile, rate

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
            "Pairs by state",
            "short",
            "Pairs as their controllers see them, by state.",
            ((f"sum by (state) (paceline_cluster_pairs{{{SELECT}}})", "{{state}}"),),
            "pair-not-ready",
        ),
        Panel(
            "Restarts",
            "short",
            "Restarts of targets and drafters within the time of one step, as the controllers count them.",
            (
                (
                    f"sum by (pair, service) (increase(paceline_cluster_restarts_total{{{SELECT}}}[$__rate_interval]))",
                    "{{pair}} {{service}}",
                ),
            ),
            "target-restarts",
        ),
        Panel(
            "Fleet sources",
            "short",
            "What gateways learn pairs from, by state; stale keeps the last list.",
            ((f"sum by (state) (paceline_gateway_fleet_sources{{{MODEL}}})", "{{state}}"),),
            "fleet-source-stale",
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
            "Engine stuck",
            "short",
            "1 while a pair has work and runs no rounds.",
            ((f"max by (pair) (paceline_engine_stuck{{{SELECT}}})", "{{pair}}"),),
            "engine-stuck",
        ),
        Panel(
            "Time left of certificates",
            "s",
            "Until the certificates in use expire; empty without TLS.",
            ((f"min by (file) (paceline_certificate_expiry_timestamp_seconds{{{MODEL}}}) - time()", "{{file}}"),),
            "certificate-expiry",
        ),
        Panel(
            "Versions",
            "short",
            "Services by version.",
            ((f"count by (version) (paceline_build_info{{{MODEL}}})", "{{version}}"),),
        ),
    ),
)
