"""A release as its Prometheus sees it for three hours: all that its alerts read, well, and what changes in it.

Two gateways and two pairs, each in a worker of its own, with kube-state-metrics and the kubelet's cAdvisor. A state
says which series differ and from when on; values are in promtool's words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

STEP_S = 60
BEGIN, END = 60, 180
"""Minutes: when a state begins to differ, and when it is looked back on."""
GATEWAYS, PAIRS = ("g0", "g1"), ("p0", "p1")
CODES = ("UNAUTHENTICATED", "DEADLINE_EXCEEDED", "INTERNAL", "UNAVAILABLE", "NOT_FOUND", "CANCELLED")
CHAT = 'endpoint="/v1/chat/completions"'
FIRST = {"0.1": 0.9, "1": 1.0, "2.5": 1.0, "+Inf": 1.0}
GAPS = {"0.02": 0.9, "0.05": 1.0, "0.5": 1.0, "1": 1.0, "+Inf": 1.0}


def number(value: float) -> str:
    """Without an exponent, which such values may not have."""
    return f"{value:.4f}".rstrip("0").rstrip(".")


def steps(minutes: float) -> int:
    """Scrapes in so many minutes."""
    return round(minutes * 60 / STEP_S)


def level(*parts: tuple[float | str, float]) -> str:
    """A gauge by (value, minutes) in turn; `_` is a series that is not there."""
    return " ".join(
        f"_x{steps(m)}" if isinstance(value, str) else f"{number(value)}x{max(steps(m) - 1, 0)}" for value, m in parts
    )


def growing(*parts: tuple[float, float]) -> str:
    """A counter by (growth a minute, minutes) in turn."""
    told, value = [], 0.0
    for rate, minutes in parts:
        each, count = rate * STEP_S / 60, max(steps(minutes) - 1, 0)
        told.append(f"{number(value)}+{number(each)}x{count}")
        value += each * (count + 1)
    return " ".join(told)


def name(metric: str, *labels: str) -> str:
    """A series of the release."""
    told = ",".join(('namespace="prod"', *labels))
    return f"{metric}{{{told}}}"


def of(metric: str, *labels: str) -> str:
    """A series of the model."""
    return name(metric, 'model_name="m"', *labels)


@dataclass
class State:
    """What differs, by series; the alerts that fire at any time, no other one does."""

    says: str
    differs: dict[str, str] = field(default_factory=dict)
    fires: frozenset[str] = frozenset()

    def series(self) -> dict[str, str]:
        """Everything that is scraped."""
        return {name: values for name, values in (well() | self.differs).items() if values}


def well() -> dict[str, str]:
    """Nothing is wrong."""
    found: dict[str, str] = {}
    for gateway in GATEWAYS:
        found |= _gateway(f'instance="{gateway}"')
    for pair in PAIRS:
        found |= _pair(f'pair="{pair}"')
    for component, pods in (("gateway", GATEWAYS), ("worker", PAIRS)):
        found |= _deployment(component, pods)
    found[of("paceline_certificate_expiry_timestamp_seconds", 'file="tls.crt"')] = level((9e9, END))
    return found


def _gateway(instance: str) -> dict[str, str]:
    found = {
        of("paceline_build_info", instance, 'version="1"'): level((1, END)),
        name("process_start_time_seconds", instance): level((0, END)),
        of("paceline_gateway_ready_targets", instance): level((len(PAIRS), END)),
        of("paceline_gateway_known_pairs", instance): level((len(PAIRS), END)),
        of("paceline_gateway_fleet_sources", instance, 'state="stale"'): level((0, END)),
        asked("OK", instance): growing((60, END)),
    }
    found |= {asked(code, instance): growing((0, END)) for code in CODES}
    found |= {refused(reason, instance): growing((0, END)) for reason in ("OVERLOADED", "NO_TARGET")}
    return found | spread("time_to_first_token", FIRST, instance, 60) | spread("inter_token", GAPS, instance, 9000)


def asked(code: str, instance: str) -> str:
    """Requests of a gateway that ended so."""
    return of("paceline_gateway_requests_total", instance, CHAT, f'code="{code}"')


def refused(reason: str, instance: str) -> str:
    """Requests of a gateway that were refused for a reason."""
    return of("paceline_gateway_rejects_total", instance, f'reason="{reason}"')


def spread(
    metric: str, shares: dict[str, float], instance: str, rate: float, later: dict[str, float] | None = None
) -> dict[str, str]:
    """A histogram: what share of so many a minute is below each bound, and from `BEGIN` on."""
    return {
        of(f"paceline_{metric}_seconds_bucket", instance, f'le="{bound}"'): growing(
            (rate * share, BEGIN), (rate * (later or shares)[bound], END - BEGIN)
        )
        for bound, share in shares.items()
    }


def _pair(pair: str) -> dict[str, str]:
    instance = pair.replace("pair", "instance")
    found = {
        of("paceline_build_info", instance, pair, 'version="1"'): level((1, END)),
        name("process_start_time_seconds", instance): level((0, END)),
        of("paceline_event_loop_lag_seconds_count", instance, pair): growing((600, END)),
        of("paceline_ready", instance, pair): level((1, END)),
        of("paceline_drafter_attached", instance, pair): level((1, END)),
        of("paceline_engine_stuck", instance, pair): level((0, END)),
        of("paceline_drafter_attaches_total", instance, pair): level((1, END)),
        of("paceline_graph_recaptures_total", instance, pair): level((0, END)),
    }
    for mode, value in (("flags", 1), ("host", 0)):
        found[of("paceline_handoff_wanted", instance, pair, f'mode="{mode}"')] = level((value, END))
    for mode, value in (("flags_mps", 1), ("host", 0)):
        found[of("paceline_handoff_mode", instance, pair, f'mode="{mode}"')] = level((value, END))
    for state, blocks in (("free", 3000), ("owned", 500), ("cached", 500)):
        found[of("paceline_kv_blocks", instance, pair, f'state="{state}"')] = level((blocks, END))
    for metric, rate in (("num_drafts", 6e3), ("num_draft_tokens", 18e3), ("num_accepted_tokens", 12e3)):
        found[of(f"paceline_spec_decode_{metric}_total", instance, pair)] = growing((rate, END))
    for metric, rate in (("speculative", 40), ("plain_equivalent", 60)):
        found[of(f"paceline_{metric}_seconds_total", instance, pair)] = growing((rate, END))
    for state in ("starting", "ready", "draining", "down", "failed"):
        found[paired(pair, state)] = level((int(state == "ready"), END))
    for service in ("target", "drafter"):
        found[of("paceline_cluster_restarts_total", pair, f'service="{service}"')] = level((0, END))
    return found


def paired(pair: str, state: str) -> str:
    """Whether a controller sees its pair in a state."""
    return of("paceline_cluster_pairs", pair, f'state="{state}"')


def _deployment(component: str, pods: Iterable[str]) -> dict[str, str]:
    found = {}
    for what in ("spec_replicas", "status_replicas_ready"):
        found[name(f"kube_deployment_{what}", f'deployment="llm-{component}"')] = level((2, END))
    for pod in pods:
        labels = (f'pod="llm-{component}-{pod}"', f'container="{component}"')
        found[name("kube_pod_container_status_restarts_total", *labels)] = level((0, END))
        found[name("container_oom_events_total", *labels)] = level((0, END))
    return found


def until(series: Iterable[str], at: float) -> dict[str, str]:
    """Series that end after so many minutes."""
    return {each: f"{well()[each].split()[0].rpartition('x')[0]}x{steps(at) - 1} stale" for each in series}


def holding(*parts: str) -> list[str]:
    """Series whose names have all these parts."""
    return [each for each in well() if all(part in each for part in parts)]
