"""The capacity dashboard."""

from deploy.grafana.panels import Board, Panel
from deploy.grafana.promql import SELECT, quantile, rate

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
