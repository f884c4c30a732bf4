"""What is said of an ended call: as fields of a line of the log, and as attributes of a span."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from services.common.request.errors import Code
from services.common.serving.logs import quoted
from services.common.serving.measures import EACH, FIRST, REQUEST, Measures
from services.common.serving.tracing import Value

if TYPE_CHECKING:
    from services.gateway.streams.calls import Call

OPERATIONS = {"/v1/chat/completions": "chat", "/v1/completions": "text_completion"}
OPERATIONS |= {"/v1/responses": "chat", "/v1/messages": "chat"}
"""By endpoint; every other one that generates takes prompts of either kind."""


def fields(call: Call) -> str:
    """The line of a call, beside the ids of request and trace that every line has, as JSON without its braces.

    Written by hand, it takes a third of what an encoder takes of a dictionary that is made for it. What many lines have
    in common is kept as it was written.
    """
    told = _common(call.tenant, call.model, call.endpoint, call.code, call.status, call.reason)
    if call.prompt_tokens:
        return f'{told}, "duration_s": {call.duration_s:.6f}{_generated(call)}'
    return f'{told}, "duration_s": {call.duration_s:.6f}'


@lru_cache(maxsize=1024)
def _common(tenant: str, model: str, endpoint: str, code: Code, status: int, reason: str) -> str:
    told = f'"tenant": {quoted(tenant)}, "model": {quoted(model)}, "endpoint": {quoted(endpoint)}'
    told += f', "code": "{code.name}"'
    if status:
        told += f', "status": {status:d}'
    return told + f', "reason": {quoted(reason)}' if reason else told


def _generated(call: Call) -> str:
    first = "null" if call.first_token_s is None else f"{call.first_token_s:.6f}"
    return (
        f', "finish_reason": {quoted(",".join(call.finish_reasons))}, "prompt_tokens": {call.prompt_tokens}, '
        f'"completion_tokens": {call.completion_tokens}, "cached_tokens": {call.cached_tokens}, '
        f'"first_token_s": {first}, "served_by": {quoted(",".join(call.pairs))}, "migrations": {call.migrations}, '
        f'"rounds": {call.rounds}, "drafted": {call.drafted}, "accepted": {call.accepted}'
    )


def attributes(call: Call, method: str) -> dict[str, Value]:
    """The root span of a call, by OpenTelemetry's conventions for HTTP, RPC and generative AI."""
    found: dict[str, Value] = {
        "paceline.request_id": call.request_id,
        "paceline.tenant": call.tenant,
    }
    if method:
        found |= {"http.request.method": method, "http.route": call.endpoint, "http.response.status_code": call.status}
    else:
        service, _, name = call.endpoint.removeprefix("/").rpartition("/")
        found |= {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}
        found["rpc.grpc.status_code"] = int(call.code)
    if call.reason:
        found["error.type"] = call.reason
    return found | (_gen_ai(call) if call.generates else {})


def _gen_ai(call: Call) -> dict[str, Value]:
    found: dict[str, Value] = {
        "gen_ai.operation.name": OPERATIONS.get(call.endpoint, "generate_content"),
        "gen_ai.provider.name": "paceline",
        "gen_ai.request.model": call.model,
        "gen_ai.response.model": call.model,
        "gen_ai.response.id": call.request_id,
        "gen_ai.response.finish_reasons": tuple(call.finish_reasons),
        "gen_ai.usage.input_tokens": call.prompt_tokens,
        "gen_ai.usage.output_tokens": call.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": call.cached_tokens,
        "paceline.pair": ",".join(call.pairs),
        "paceline.migrations": call.migrations,
        "paceline.rounds": call.rounds,
        "paceline.drafted": call.drafted,
        "paceline.accepted": call.accepted,
    }
    if call.first_token_s is not None:
        found["paceline.first_token_s"] = call.first_token_s
    return found


def measure(call: Call, measures: Measures) -> None:
    """Times of a call for text, under the names of OpenTelemetry; those of tokens where it succeeded."""
    found: dict[str, Value] = {
        "gen_ai.operation.name": OPERATIONS.get(call.endpoint, "generate_content"),
        "gen_ai.provider.name": "paceline",
        "gen_ai.request.model": call.model,
        "gen_ai.response.model": call.model,
    }
    if call.reason:
        measures.record(REQUEST, call.duration_s, found | {"error.type": call.reason})
        return
    measures.record(REQUEST, call.duration_s, found)
    if call.first_token_s is None:
        return
    measures.record(FIRST, call.first_token_s, found)
    later = call.completion_tokens / max(len(call.finish_reasons), 1) - 1.0
    if later > 0.0:
        measures.record(EACH, (call.duration_s - call.first_token_s) / later, found)
