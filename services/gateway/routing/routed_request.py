"""One request as the gateway passes it from target to target; immutable, knows no protobuf."""

from dataclasses import dataclass

from services.common.request.constraint import Rule
from services.common.request.sampling import SamplingParams, SpeculationParams, StopParams
from services.gateway.tenancy.admission import Tenant


@dataclass(frozen=True, slots=True)
class RoutedRequest:
    """A validated request with its seed fixed; `deadline` is in seconds of the event loop's clock.

    `opening` names what all turns of its chat begin with; it is empty for what is no chat.
    """

    request_id: str
    model: str
    tenant: Tenant
    prompt: tuple[int, ...]
    sampling: SamplingParams
    stopping: StopParams
    speculation: SpeculationParams
    logprobs: int | None
    priority: int
    deadline: float
    key: str
    migration: bool
    traceparent: str
    rule: Rule | None = None
    prompt_logprobs: int | None = None
    opening: bytes = b""


def needs(job: RoutedRequest) -> frozenset[str]:
    """Features that a target must name in its Welcome to serve a request."""
    wanted = {
        "rules": job.rule is not None and bool(job.rule.grammar),
        "forced": job.rule is not None and job.rule.forces,
        "scores": job.prompt_logprobs is not None,
    }
    return frozenset(name for name, needed in wanted.items() if needed)


def key_of(job: RoutedRequest) -> str:
    """What requests share that must meet on one target; empty for a request that need not meet any."""
    return f"{job.tenant.name}\0{job.key}" if job.key else ""
