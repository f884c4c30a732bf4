"""The fleet dashboard."""

from deploy.grafana.panels import BAD, OK, WARN, Board, Panel
from deploy.grafana.promql import BY, CLUSTER, MODEL, NAMESPACE, PAIR, SELECT, grown, quantile, rate


def dcgm(field: str) -> str:
    """A metric of NVIDIA's exporter; without honorLabels its scrapes tell the pod's namespace as exported_namespace."""
    name = f"DCGM_FI_DEV_{field}"
    theirs = f'{name}{{{CLUSTER},exported_namespace=~"$namespace",exported_pod!=""}}'
    return f'{theirs} or {name}{{{NAMESPACE},exported_namespace=""}}'


def token_time(select: str) -> str:
    """Seconds that a token of a request takes at a pair: requests that run, over tokens a second."""
    return f"sum by ({PAIR}) (avg_over_time(paceline_running_requests{{{select}}}[$__rate_interval])) / ({EMITTED} > 0)"


EMITTED = rate("paceline_emitted_tokens_total", by=PAIR)
READY = 'state="ready"'
OURS = f'{NAMESPACE},deployment=~".+-(gateway|worker)(-.+)?"'
CONTAINERS = f'{NAMESPACE},container=~"gateway|worker|controller|ray"'

FLEET = Board(
    "paceline-fleet",
    "paceline / Fleet",
    "Which pairs are there, and how stable are they?",
    (
        Panel(
            "Pairs, slowest first: time a token",
            "s",
            "Time that a token of a request takes now: requests that run, over tokens a second.",
            ((f"sort_desc(topk(12, {token_time(SELECT)}))", "{{pair}}"),),
            runbook="token-gaps",
            ranked=True,
        ),
        Panel(
            "Pairs wanted and ready",
            "short",
            "Pairs that the gateway which knows most of them knows, those that controllers call ready, and those that "
            "the gateway which sees fewest can use.",
            (
                (f"max by ({BY}) (paceline_gateway_known_pairs{{{MODEL}}})", "{{model_name}} wanted"),
                (f"sum by ({BY}) (paceline_cluster_pairs{{{SELECT},{READY}}})", "{{model_name}} ready"),
                (f"min by ({BY}) (paceline_gateway_ready_targets{{{MODEL}}})", "{{model_name}} in use"),
            ),
            runbook="fewer-than-wanted",
        ),
        Panel(
            "Pairs ready",
            "bool_yes_no",
            "1 while the target of a pair takes work.",
            ((f"max by ({PAIR}) (paceline_ready{{{SELECT}}})", "{{pair}}"),),
            runbook="no-ready-pair",
            steps=((1, OK),),
            most=1,
        ),
        Panel(
            "Pairs by state",
            "short",
            "Pairs as their controllers see them, by state.",
            ((f"sum by (state) (paceline_cluster_pairs{{{SELECT}}})", "{{state}}"),),
            runbook="pair-not-ready",
        ),
        Panel(
            "Restarts",
            "short",
            "Restarts of targets and drafters within a step, as controllers count them.",
            ((grown("paceline_cluster_restarts_total", by=f"{PAIR}, service"), "{{pair}} {{service}}"),),
            runbook="target-restarts",
            steps=((1, WARN),),
        ),
        Panel(
            "What kept pairs from serving",
            "short",
            "No room, straddled GPUs, refused, unhealthy, given up; and placements, within a step.",
            (
                (grown("paceline_cluster_failures_total", by=f"{PAIR}, reason"), "{{pair}} {{reason}}"),
                (grown("paceline_cluster_placements_total", by=PAIR), "{{pair}} placed"),
            ),
            runbook="pair-not-ready",
        ),
        Panel(
            "Fleet sources",
            "short",
            "What gateways learn pairs from, by state; stale keeps the last list.",
            ((f"sum by (state) (paceline_gateway_fleet_sources{{{MODEL}}})", "{{state}}"),),
            runbook="fleet-source-stale",
        ),
        Panel(
            "Drafters attached",
            "bool_yes_no",
            "1 while a drafter is attached.",
            (
                (f"max by ({PAIR}) (paceline_drafter_attached{{{SELECT}}})", "{{pair}} attached"),
                (f"max by ({PAIR}) (paceline_drafter_ready{{{SELECT}}})", "{{pair}} drafter ready"),
            ),
            runbook="pair-degraded",
            most=1,
        ),
        Panel(
            "Attachments",
            "short",
            "Drafters attached within a step: a drafter that restarts attaches again.",
            ((grown("paceline_drafter_attaches_total", by=PAIR), "{{pair}}"),),
            runbook="restart-loop",
        ),
        Panel(
            "Quarantines",
            "short",
            "Attachments dropped, and refused by drafters, within a step, by reason.",
            (
                (grown("paceline_drafter_quarantines_total", by=f"{PAIR}, reason"), "{{pair}} {{reason}}"),
                (grown("paceline_drafter_refusals_total", by=f"{PAIR}, reason"), "{{pair}} refused: {{reason}}"),
            ),
            runbook="pair-degraded",
        ),
        Panel(
            "Migrations",
            "reqps",
            "Requests that continued on another target, by cause, on one of other numerics, and those that could not.",
            (
                (rate("paceline_gateway_migrations_total", MODEL, "cause"), "{{cause}}"),
                (rate("paceline_gateway_migration_failures_total", MODEL), "{{model_name}} failed"),
                (rate("paceline_gateway_numerics_changes_total", MODEL), "{{model_name}} to other numerics"),
            ),
        ),
        Panel(
            "Event loop lag",
            "s",
            "How late event loops run, p99.",
            ((quantile(0.99, "paceline_event_loop_lag_seconds", MODEL, "job"), "{{job}}"),),
        ),
        Panel(
            "Engine stuck",
            "bool_yes_no",
            "1 while a pair has work and runs no rounds.",
            ((f"max by ({PAIR}) (paceline_engine_stuck{{{SELECT}}})", "{{pair}}"),),
            runbook="engine-stuck",
            steps=((1, BAD),),
            most=1,
        ),
        Panel(
            "Time left of certificates",
            "s",
            "Until the certificates in use expire; empty without TLS.",
            (
                (
                    "min by (cluster, namespace, file) "
                    f"(paceline_certificate_expiry_timestamp_seconds{{{MODEL}}}) - time()",
                    "{{cluster}} {{namespace}} {{file}}",
                ),
            ),
            runbook="certificate-expiry",
            steps=((7 * 86400, OK),),
            least=None,
        ),
        Panel(
            "Versions",
            "short",
            "Services by version.",
            (
                (
                    f"count by (cluster, namespace, version) (paceline_build_info{{{MODEL}}})",
                    "{{cluster}} {{namespace}} {{version}}",
                ),
            ),
        ),
        Panel(
            "Numerics",
            "short",
            "Targets by the digest of what they compute with: between two of them a text may go on otherwise. Captured "
            "shapes in which rows differ, or would by the library's kernels.",
            (
                (
                    f"count by (cluster, namespace, digest) (paceline_numerics{{{SELECT}}})",
                    "{{cluster}} {{namespace}} {{digest}}",
                ),
                (
                    f'sum by (cluster, namespace, state) (paceline_exact_shapes{{{SELECT},state!="equal"}})',
                    "{{cluster}} {{namespace}} {{state}} shapes",
                ),
            ),
        ),
        Panel(
            "Memory of processes",
            "bytes",
            "Resident memory of targets, drafters and gateways.",
            (
                (
                    "process_resident_memory_bytes * on (cluster, namespace, instance) group_left (model_name, pair) "
                    f"paceline_build_info{{{MODEL}}}",
                    "{{job}} {{pair}} {{instance}}",
                ),
            ),
        ),
        Panel(
            "GPU busy (DCGM)",
            "percent",
            "Where NVIDIA's exporter is scraped: share of time that kernels run.",
            (
                (
                    dcgm("GPU_UTIL"),
                    "{{Hostname}} {{gpu}}",
                ),
            ),
            most=100,
        ),
        Panel(
            "GPU memory in use (DCGM)",
            "decmbytes",
            "Where NVIDIA's exporter is scraped.",
            (
                (
                    dcgm("FB_USED"),
                    "{{Hostname}} {{gpu}}",
                ),
            ),
        ),
        Panel(
            "Starts of processes in 30 minutes",
            "short",
            "At one address: a container that starts again and again, no rollout.",
            (
                (
                    f"max by (cluster, namespace, instance) (changes(process_start_time_seconds{{{NAMESPACE}}}[30m])"
                    f" and on (cluster, namespace, instance) paceline_build_info{{{MODEL}}})",
                    "{{cluster}} {{namespace}} {{instance}}",
                ),
            ),
            runbook="crash-loop",
            steps=((3, WARN),),
        ),
        Panel(
            "Pods that are wanted and not ready",
            "short",
            "Where kube-state-metrics is scraped.",
            (
                (
                    f"kube_deployment_spec_replicas{{{OURS}}}"
                    f" - on (cluster, namespace, deployment) kube_deployment_status_replicas_ready{{{OURS}}}",
                    "{{cluster}} {{namespace}} {{deployment}}",
                ),
            ),
            runbook="fewer-than-wanted",
            steps=((1, WARN),),
        ),
        Panel(
            "Processes killed for want of memory",
            "short",
            "Within a step, where the kubelet's cAdvisor is scraped.",
            (
                (
                    grown("container_oom_events_total", CONTAINERS, "namespace, pod"),
                    "{{cluster}} {{namespace}} {{pod}}",
                ),
            ),
            runbook="out-of-memory",
            steps=((1, BAD),),
        ),
    ),
)
