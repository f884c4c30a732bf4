"""Half an hour of four pairs with an ill one, a noisy tenant and a broken SLO, as a Prometheus would have scraped it.

From the tenth minute on the drafts of pair-2 are refused and its rounds take thrice as long. From the twelfth on the
tenant `nightly` asks eight times as much as before: queues grow, first tokens come late, some calls are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from services.common.metrics.declare import LATENCY, LENGTH, ROUND

MINUTES, STEP_S = 30, 15
ILL, NOISY = "pair-2", "nightly"
ILL_FROM, NOISY_FROM = 10 * 60, 12 * 60
PAIRS = tuple(f"pair-{number}" for number in range(4))
TENANTS = {"acme": 6.0, "kiosk": 2.0, NOISY: 3.0, "web": 9.0}
"""Calls a second, before."""
GATEWAYS = ("gateway-a", "gateway-b")
MODEL, WHERE = "smollm2", {"namespace": "prod"}
CHAT = "/v1/chat/completions"
PROMPT, ANSWER = 420.0, 180.0
"""Tokens of a call."""
SPANS = ("host", "verify", "draft_wait")
LEVELS = {"ready": 1.0, "drafter_attached": 1.0, "drafter_ready": 1.0, "engine_stuck": 0.0, "slots": 64.0}


def ill(pair: str, at: float) -> bool:
    """Whether a pair is ill, so many seconds from the beginning."""
    return pair == ILL and at >= ILL_FROM


def calls(tenant: str, at: float) -> float:
    """Calls of a tenant a second."""
    return TENANTS[tenant] * (8.0 if tenant == NOISY and at >= NOISY_FROM else 1.0)


@dataclass
class Fleet:
    """Counts on and on; `lines` holds samples by metric, for OpenMetrics wants those of one together."""

    began: float
    lines: dict[str, list[str]] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=dict)

    def gauge(self, name: str, value: float, at: float, **labels: str) -> None:
        """A level; names without our prefix."""
        self._line(f"paceline_{name}", "gauge", f"paceline_{name}", value, at, labels)

    def count(self, name: str, a_second: float, at: float, **labels: str) -> None:
        """So much more a second since the step before."""
        self._more(f"paceline_{name}", "counter", f"paceline_{name}_total", a_second, at, labels)

    def spread(
        self, name: str, a_second: float, mean: float, at: float, bounds: tuple[float, ...] = LATENCY, **labels: str
    ) -> None:
        """So many observations a second about a mean: half of them below it, nine tenths below twice as much."""
        full = f"paceline_{name}"
        for bound in (*bounds, float("inf")):
            share = min(1.0, 0.5 * bound / mean if bound < mean else 0.5 + 0.4 * (bound / mean - 1.0))
            share = share if bound < 2 * mean else min(1.0, 0.9 + 0.05 * (bound / mean - 2.0))
            edge = "+Inf" if bound == float("inf") else str(bound)
            self._more(full, "histogram", f"{full}_bucket", a_second * share, at, labels | {"le": edge})
        self._more(full, "histogram", f"{full}_count", a_second, at, labels)
        self._more(full, "histogram", f"{full}_sum", a_second * mean, at, labels)

    def _more(self, family: str, kind: str, name: str, a_second: float, at: float, labels: dict[str, str]) -> None:
        key = name + str(sorted(labels.items()))
        self.totals[key] = self.totals.get(key, 0.0) + a_second * STEP_S
        self._line(family, kind, name, self.totals[key], at, labels)

    def _line(self, family: str, kind: str, name: str, value: float, at: float, labels: dict[str, str]) -> None:
        told = ",".join(f'{key}="{value}"' for key, value in (WHERE | {"model_name": MODEL} | labels).items())
        lines = self.lines.setdefault(family, [f"# TYPE {family} {kind}"])
        lines.append(f"{name}{{{told}}} {value:.6g} {self.began + at:.0f}")

    def text(self) -> str:
        """All of it as OpenMetrics."""
        return "\n".join(line for lines in self.lines.values() for line in lines) + "\n# EOF\n"


def history(began: float) -> str:
    """The half hour from a time on, in seconds since the epoch."""
    fleet = Fleet(began)
    for at in range(0, MINUTES * 60 + 1, STEP_S):
        for tell in (_pairs, _gateways, _tenants):
            tell(fleet, float(at))
    return fleet.text()


def _pairs(fleet: Fleet, at: float) -> None:
    asked = sum(calls(tenant, at) for tenant in TENANTS) / len(PAIRS)
    for pair in PAIRS:
        sick = ill(pair, at)
        accepted, round_s = (0.25, 0.036) if sick else (1.9, 0.012)
        running = min(64.0, asked * ANSWER * round_s / (1.0 + accepted))
        rounds = 1.0 / round_s
        emitted = rounds * running * (1.0 + accepted)
        level, count = partial(fleet.gauge, at=at, pair=pair), partial(fleet.count, at=at, pair=pair)
        for name, value in LEVELS.items():
            level(name, value)
        level("running_requests", running)
        level("waiting_requests", max(0.0, asked - 8.0) * (6.0 if sick else 2.0))
        level("adaptive_width", 1.0 if sick else 4.0)
        level("cluster_pairs", 1.0, state="ready")
        level("build_info", 1.0, version="0.2.0", instance=pair, job="target")
        for state, blocks in (("owned", running * 40), ("cached", 900.0), ("free", 4000.0 - running * 40)):
            level("kv_blocks", blocks, state=state)
        for name, rate in _rates(rounds, running, accepted, emitted, asked, sick):
            count(name, rate)
        for width, share in ((1, 0.9 if sick else 0.05), (4, 0.1 if sick else 0.95)):
            count("rounds", rounds * share, width=str(width))
        count("requests", asked, finish_reason="stop_token")
        for position in range(3):
            count("spec_decode_num_accepted_tokens_per_pos", rounds * running * accepted / 3, position=str(position))
        for name, share in zip(SPANS, (0.05, 0.7, 0.25), strict=True):
            fleet.spread(f"{name}_seconds", rounds, round_s * share, at, ROUND, pair=pair)
        fleet.spread("round_seconds", rounds, round_s, at, ROUND, pair=pair)
        fleet.spread("queue_seconds", asked, 0.02 if at < NOISY_FROM else 1.4, at, pair=pair)
        fleet.spread("prefill_seconds", asked, 0.08, at, pair=pair)


def _rates(
    rounds: float, running: float, accepted: float, emitted: float, asked: float, sick: bool
) -> Iterator[tuple[str, float]]:
    """Counters of a pair by what they grow in a second."""
    yield "spec_decode_num_drafts", rounds * running
    yield "spec_decode_num_draft_tokens", 3 * rounds * running
    yield "spec_decode_num_accepted_tokens", rounds * running * accepted
    yield "committed_tokens", emitted
    yield "emitted_tokens", emitted
    yield "prompt_tokens", asked * PROMPT
    yield "cached_prompt_tokens", asked * PROMPT * (0.12 if sick else 0.45)
    yield "speculative_seconds", 0.9
    yield "plain_equivalent_seconds", 0.9 * (0.7 if sick else 1.6)
    yield "drafter_attaches", 0.02 if sick else 0.0


def _gateways(fleet: Fleet, at: float) -> None:
    for gateway in GATEWAYS:
        fleet.gauge("gateway_ready_targets", 4.0, at, instance=gateway)
        fleet.gauge("gateway_known_pairs", 4.0, at, instance=gateway)
        fleet.gauge("gateway_inflight_requests", 30.0 if at < NOISY_FROM else 120.0, at, instance=gateway)
        fleet.gauge("gateway_fleet_sources", 1.0, at, instance=gateway, state="live")
        fleet.gauge("build_info", 1.0, at, instance=gateway, job="gateway", version="0.2.0", pair="")
        fleet.spread("event_loop_lag_seconds", 10.0, 0.002, at, instance=gateway, job="gateway")


def _tenants(fleet: Fleet, at: float) -> None:
    busy = at >= NOISY_FROM
    for gateway in GATEWAYS:
        for tenant in TENANTS:
            rate = calls(tenant, at) / len(GATEWAYS)
            refused = 0.3 * rate if busy and tenant == NOISY else 0.0
            good = rate - refused
            tell = partial(fleet.count, at=at, instance=gateway, tenant=tenant)
            tell("gateway_tenant_requests", good, code="OK")
            tell("gateway_tenant_requests", refused, code="RESOURCE_EXHAUSTED")
            tell("gateway_prompt_tokens", good * PROMPT)
            tell("gateway_cached_prompt_tokens", good * PROMPT * 0.4)
            tell("gateway_generation_tokens", good * ANSWER)
            first_s = 1.7 if busy else 0.15
            fleet.spread("time_to_first_token_seconds", good, first_s, at, instance=gateway, tenant=tenant)
        rate = sum(calls(tenant, at) for tenant in TENANTS) / len(GATEWAYS)
        refused = 0.3 * calls(NOISY, at) / len(GATEWAYS) if busy else 0.0
        lost = 0.004 * rate if busy else 0.0
        for code, share in (("OK", rate - refused - lost), ("RESOURCE_EXHAUSTED", refused), ("UNAVAILABLE", lost)):
            fleet.count("gateway_requests", share, at, endpoint=CHAT, code=code, instance=gateway)
        fleet.count("gateway_rejects", refused, at, reason="OVERLOADED", instance=gateway)
        fleet.count("gateway_finishes", rate - refused, at, finish_reason="stop_token", instance=gateway)
        fleet.count("gateway_delivered_tokens", (rate - refused) * ANSWER, at, instance=gateway)
        fleet.spread("inter_token_seconds", rate * ANSWER, 0.005 if at < ILL_FROM else 0.012, at, instance=gateway)
        fleet.spread("request_seconds", rate, 1.2 if not busy else 4.0, at, instance=gateway)
        fleet.spread("request_prompt_length", rate, PROMPT, at, LENGTH, instance=gateway)
        fleet.spread("request_generation_length", rate, ANSWER, at, LENGTH, instance=gateway)
