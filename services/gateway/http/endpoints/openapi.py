"""The OpenAPI document, made of the forms that bodies are judged by and answers are written in."""

from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from services.common.metrics.version import VERSION
from services.gateway.http.endpoints.message_bodies import CountBody, MessagesBody
from services.gateway.http.endpoints.messages import CountReply, MessageRefusal, MessageReply
from services.gateway.http.endpoints.response_bodies import ResponsesBody
from services.gateway.http.endpoints.responses import ResponseReply
from services.gateway.http.endpoints.tokens import DetokenizeBody, TokenizeBody
from services.gateway.http.schema.bodies import ChatBody, CompletionBody
from services.gateway.http.schema.replies import (
    ChatChunk,
    ChatReply,
    CompletionReply,
    DetokenizeReply,
    ErrorReply,
    ModelList,
    ModelReply,
    StatusReply,
    TokenizeReply,
    TokenizerReply,
    VersionReply,
)
from services.gateway.http.server.exchange import encoded

BODIES = (ChatBody, CompletionBody, MessagesBody, CountBody, ResponsesBody, TokenizeBody, DetokenizeBody)
REPLIES = (
    ChatReply,
    ChatChunk,
    CompletionReply,
    ModelList,
    ModelReply,
    StatusReply,
    TokenizeReply,
    TokenizerReply,
    DetokenizeReply,
    VersionReply,
    ResponseReply,
    MessageReply,
    CountReply,
    MessageRefusal,
    ErrorReply,
)
REFERENCE = "#/components/schemas/{model}"
REFUSALS = {
    "400": "A field is unknown, of the wrong form or out of range; `param` names it.",
    "401": "No key, or a wrong one.",
    "404": "No such model, or nothing is served at this path.",
    "405": "Another method is allowed here.",
    "408": "The body did not come in time.",
    "409": "A request with this Idempotency-Key runs or has just ended.",
    "413": "The body is too large.",
    "415": "The body is not said to be JSON, or its compression is not taken.",
    "421": "The listener is on loopback and is asked by a name that is not.",
    "429": "Too much is under way, or the client does not read; Retry-After tells when to try again.",
    "431": "The request line and the headers are too large.",
    "503": "No target is ready, or the gateway is going away.",
    "504": "The time passed before the first token.",
}
PROBE_REFUSALS = ("400", "405", "421", "431")
HEADERS = (
    ("X-Request-Id", "Names the request; comes back.", {"type": "string", "pattern": "^[!-~]{1,128}$"}),
    ("X-Request-Timeout", "Seconds that the request may take.", {"type": "number", "exclusiveMinimum": 0}),
    ("Idempotency-Key", "Refuses a second request with this key.", {"type": "string", "maxLength": 128}),
)
"""The first one goes with every request, the others with those that generate."""


@cache
def written() -> bytes:
    """The document as it is sent; made once, when somebody asks, for that takes longer than all else of a start."""
    return encoded(document())


def document() -> dict[str, Any]:
    """The OpenAPI document of what the gateway serves over HTTP."""
    _, given = models_json_schema([(body, "validation") for body in BODIES], ref_template=REFERENCE)
    schemas: dict[str, Any] = dict(given["$defs"])
    for reply in REPLIES:
        made = TypeAdapter[Any](reply).json_schema(ref_template=REFERENCE, mode="serialization")
        schemas |= made.pop("$defs", {}) | {reply.__name__: made}
    return {
        "openapi": "3.1.0",
        "info": {"title": "paceline", "version": VERSION, "description": "OpenAI's API, served by paceline."},
        "paths": {
            "/health": {"get": _probe("getHealth")},
            "/ping": {"get": _probe("getPing"), "post": _probe("postPing")},
            "/version": {"get": _open("getVersion", "The version of the server.", "VersionReply")},
            "/v1/responses": {
                "post": _post("createResponse", "A response.", ResponsesBody, "ResponseReply", "ResponseReply")
            },
            "/v1/messages": {
                "post": _refused_as_messages(
                    _post("createMessage", "Anthropic's Messages.", MessagesBody, "MessageReply", "MessageReply")
                )
            },
            "/v1/messages/count_tokens": {
                "post": _refused_as_messages(
                    _whole("countTokens", "Tokens of a message's prompt.", CountBody, "CountReply")
                )
            },
            "/tokenize": {
                "post": _whole("tokenize", "Token ids of a prompt or a chat.", TokenizeBody, "TokenizeReply")
            },
            "/detokenize": {"post": _whole("detokenize", "The text of token ids.", DetokenizeBody, "DetokenizeReply")},
            "/tokenizer_info": {"get": _get("tokenizerInfo", "Special tokens and the template.", "TokenizerReply")},
            "/v1/models": {"get": _get("listModels", "The model served.", "ModelList")},
            "/v1/models/{model}": {
                "parameters": [_parameter("path", "model", "Its name.", {"type": "string"})],
                "get": _get("retrieveModel", "One model.", "ModelReply"),
            },
            "/v1/paceline/status": {"get": _get("getStatus", "How busy the pairs are.", "StatusReply")},
            "/v1/chat/completions": {
                "post": _post("createChatCompletion", "The next message of a chat.", ChatBody, "ChatReply", "ChatChunk")
            },
            "/v1/completions": {
                "post": _post(
                    "createCompletion",
                    "A prompt that is continued.",
                    CompletionBody,
                    "CompletionReply",
                    "CompletionReply",
                )
            },
        },
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
    }


def _get(name: str, summary: str, reply: str) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "parameters": [_parameter("header", *HEADERS[0])],
        "responses": {"200": _content(summary, reply), **_refusals(("400", "401", "404", "405", "421", "431", "503"))},
    }


def _refused_as_messages(operation: dict[str, Any]) -> dict[str, Any]:
    """An operation whose refusals are Anthropic's."""
    told = {
        status: _content(REFUSALS[status], "MessageRefusal") for status in operation["responses"] if status in REFUSALS
    }
    return operation | {"responses": operation["responses"] | told}


def _probe(name: str) -> dict[str, Any]:
    told = {"200": {"description": "Requests are taken."}, "503": {"description": "No target is ready."}}
    summary = "Whether requests are taken; needs no key."
    return {"operationId": name, "summary": summary, "security": [], "responses": told | _refusals(PROBE_REFUSALS)}


def _open(name: str, summary: str, reply: str) -> dict[str, Any]:
    responses = {"200": _content(summary, reply), **_refusals(PROBE_REFUSALS)}
    return {"operationId": name, "summary": summary, "security": [], "responses": responses}


def _post(name: str, summary: str, body: type, whole: str, chunk: str) -> dict[str, Any]:
    found = _whole(name, summary, body, whole)
    found["parameters"] = [_parameter("header", *header) for header in HEADERS]
    answer = _content("The answer, or with `stream` its events: `data:` lines, the last one [DONE].", whole)
    answer["content"]["text/event-stream"] = {"schema": {"type": "string"}, "x-event-schema": _reference(chunk)}
    found["responses"]["200"] = answer
    return found


def _whole(name: str, summary: str, body: type, reply: str) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "parameters": [_parameter("header", *HEADERS[0])],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _reference(body.__name__)}}},
        "responses": {"200": _content("The answer.", reply), **_refusals(tuple(REFUSALS))},
    }


def _refusals(statuses: tuple[str, ...]) -> dict[str, Any]:
    return {status: _content(REFUSALS[status], "ErrorReply") for status in statuses}


def _content(description: str, reply: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": _reference(reply)}}}


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": REFERENCE.format(model=name)}


def _parameter(place: str, name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    required = {"required": True} if place == "path" else {}
    return {"in": place, "name": name, "description": description, "schema": schema, **required}
