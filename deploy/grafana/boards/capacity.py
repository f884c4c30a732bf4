"""The capacity dashboard."""

from deploy.grafana.panels import BAD, WARN, Board, Panel
from deploy.grafana.promql import BY, MODEL, NAMED, PAIR, SELECT, buckets, grown, quantile, rate, share

EMITTED, PROMPT = "paceline_emitted_tokens_total", "paceline_prompt_tokens_total"
CACHED = "paceline_cached_prompt_tokens_total"
OWNED = f'{SELECT},state="owned"'

GATEWAY = "cluster, namespace, instance"
FOUND = rate("paceline_gateway_cached_prompt_tokens_total", MODEL, GATEWAY)
ASKED = rate("paceline_gateway_prompt_tokens_total", MODEL, GATEWAY)

EXPERTS_READ = rate("paceline_expert_reads_total", by=f"{PAIR}, memory")
EXPERT_BYTES = rate("paceline_expert_read_bytes_total", by=f"{PAIR}, memory")
ROUNDS, TOKENS = (rate(f"paceline_{name}_total", by=PAIR) for name in ("rounds", "emitted_tokens"))

CAPACITY = Board(
    "paceline-capacity",
    "paceline / Capacity",
    "How full are slots, queue and K/V, and what does a GPU deliver?",
    (
        Panel(
            "Running and waiting",
            "short",
            "Requests that hold a slot, and requests in the queue.",
            (
                (f"sum by ({PAIR}) (paceline_running_requests{{{SELECT}}})", "{{pair}} running"),
                (f"sum by ({PAIR}) (paceline_waiting_requests{{{SELECT}}})", "{{pair}} waiting"),
            ),
            runbook="queue-saturated",
        ),
        Panel(
            "Slots in use",
            "percentunit",
            "Share of slots that hold a request.",
            (
                (
                    f"sum by ({PAIR}) (paceline_running_requests{{{SELECT}}})"
                    f" / sum by ({PAIR}) (paceline_slots{{{SELECT}}})",
                    "{{pair}}",
                ),
            ),
            steps=((0.9, WARN),),
        ),
        Panel(
            "K/V in use",
            "percentunit",
            "Share of blocks that running requests own; cache gives way and does not count.",
            (
                (
                    f"sum by ({PAIR}) (paceline_kv_blocks{{{OWNED}}})"
                    f" / sum by ({PAIR}) (paceline_kv_blocks{{{SELECT}}})",
                    "{{pair}}",
                ),
            ),
            runbook="kv-nearly-full",
            steps=((0.8, WARN), (0.95, BAD)),
        ),
        Panel(
            "K/V blocks by state",
            "short",
            "Free, owned by requests, kept by the prefix cache.",
            ((f"sum by ({PAIR}, state) (paceline_kv_blocks{{{SELECT}}})", "{{pair}} {{state}}"),),
            runbook="kv-nearly-full",
        ),
        Panel(
            "Preemptions",
            "reqps",
            "Requests that gave their blocks up and were computed again.",
            ((rate("paceline_preemptions_total", by=PAIR), "{{pair}}"),),
            runbook="kv-nearly-full",
        ),
        Panel(
            "Tokens per second and pair",
            "tps",
            "What each pair delivers, which is what its GPU does unless pairs share one (pairsPerGpu).",
            (
                (rate(EMITTED, by=PAIR), "{{pair}}"),
                (
                    f"{rate(EMITTED)} / (sum by ({BY}) (paceline_ready{{{SELECT}}}) > 0)",
                    f"mean of {NAMED}",
                ),
            ),
        ),
        Panel(
            "Discarded tokens",
            "tps",
            "Computed and thrown away, by reason.",
            ((rate("paceline_discarded_tokens_total", by="reason"), "{{reason}}"),),
        ),
        Panel(
            "Queued prompt tokens",
            "suffix: tokens",
            "Prompt tokens that wait for prefill.",
            ((f"sum by ({PAIR}) (paceline_queued_tokens{{{SELECT}}})", "{{pair}}"),),
        ),
        Panel(
            "Time in the queue",
            "s",
            "From arrival at the target to admission.",
            (
                (quantile(0.5, "paceline_queue_seconds"), "{{model_name}} p50"),
                (quantile(0.95, "paceline_queue_seconds"), "{{model_name}} p95"),
            ),
        ),
        Panel(
            "Requests by time in the queue",
            "s",
            "How many requests waited for how long.",
            ((buckets("paceline_queue_seconds"), "{{le}}"),),
            heatmap=True,
        ),
        Panel(
            "Prefill time",
            "s",
            "From admission to the first token.",
            (
                (quantile(0.5, "paceline_prefill_seconds"), "{{model_name}} p50"),
                (quantile(0.95, "paceline_prefill_seconds"), "{{model_name}} p95"),
            ),
        ),
        Panel(
            "Prefix cache hits",
            "percentunit",
            "Share of prompt tokens served from the prefix cache.",
            (
                (
                    share(rate(CACHED, by=PAIR), rate(PROMPT, by=PAIR)),
                    "{{pair}}",
                ),
            ),
        ),
        Panel(
            "Prefix cache hits by gateway",
            "percentunit",
            "Share of the prompt tokens of ended requests that a prefix cache had: alike where gateways route alike.",
            ((share(FOUND, ASKED), "{{instance}}"),),
        ),
        Panel(
            "Prefix cache evictions",
            "ops",
            "Blocks per second that left the prefix cache.",
            ((rate("paceline_prefix_cache_evictions_total", by=PAIR), "{{pair}}"),),
        ),
        Panel(
            "State snapshots",
            "short",
            "Recurrent states kept for prompts that begin alike; requests per second that went on from one; losses.",
            (
                (f"sum by ({PAIR}) (paceline_state_snapshots{{{SELECT}}})", "{{pair}} held"),
                (rate("paceline_state_snapshot_hits_total", by=PAIR), "{{pair}} hits a second"),
                (rate("paceline_state_snapshot_evictions_total", by=PAIR), "{{pair}} evictions a second"),
            ),
        ),
        Panel(
            "Memory of state snapshots",
            "bytes",
            "What the snapshots that are held take; room for all of them is planned.",
            ((f"sum by ({PAIR}) (paceline_state_snapshot_bytes{{{SELECT}}})", "{{pair}}"),),
        ),
        Panel(
            "Experts read in a round",
            "short",
            "Distinct experts over all layers, those that prompts read included, and what of it lay beside the GPU.",
            (
                (f"{EXPERTS_READ} / on ({PAIR}) group_left () ({ROUNDS} > 0)", "{{pair}} {{memory}}"),
                (rate("paceline_expert_exchanges_total", by=PAIR), "{{pair}} exchanges a second"),
            ),
        ),
        Panel(
            "Bytes of experts a token",
            "bytes",
            "What a token of an answer reads of experts, by the memory that they lie in.",
            ((f"{EXPERT_BYTES} / on ({PAIR}) group_left () ({TOKENS} > 0)", "{{pair}} {{memory}}"),),
        ),
        Panel(
            "Captures after warm-up",
            "short",
            "Steps captured within a step of time; 0 when healthy.",
            (
                (
                    grown("paceline_graph_recaptures_total", by=PAIR),
                    "{{pair}}",
                ),
            ),
            runbook="recapture",
            steps=((1, WARN),),
        ),
        Panel(
            "Memory of captured steps",
            "bytes",
            "What captured steps keep between their kernels.",
            ((f"max by ({PAIR}) (paceline_graph_held_bytes{{{SELECT}}})", "{{pair}}"),),
        ),
        Panel(
            "Type of keys and values",
            "short",
            "1 for the type that keys and values are kept in.",
            ((f"paceline_kv_dtype{{{SELECT}}} == 1", "{{pair}} {{dtype}}"),),
        ),
    ),
)
