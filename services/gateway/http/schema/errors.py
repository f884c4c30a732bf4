"""Refusals as OpenAI's clients read them: a status, and a JSON object `error`."""

import itertools
import json
import logging
import math
import re
import secrets
from collections.abc import Iterable, Mapping
from http import HTTPStatus

from services.common.request.errors import Code, PacelineError, Reason
from services.gateway.http.schema.replies import ErrorReply

logger = logging.getLogger(__name__)

Headers = list[tuple[bytes, bytes]]
STATUS = {
    Code.INVALID_ARGUMENT: HTTPStatus.BAD_REQUEST,
    Code.FAILED_PRECONDITION: HTTPStatus.BAD_REQUEST,
    Code.OUT_OF_RANGE: HTTPStatus.BAD_REQUEST,
    Code.UNIMPLEMENTED: HTTPStatus.BAD_REQUEST,
    Code.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
    Code.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    Code.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.ALREADY_EXISTS: HTTPStatus.CONFLICT,
    Code.RESOURCE_EXHAUSTED: HTTPStatus.TOO_MANY_REQUESTS,
    Code.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.DEADLINE_EXCEEDED: HTTPStatus.GATEWAY_TIMEOUT,
}
"""Statuses by code; what is not here is a defect."""

CODES = {
    Reason.CONTEXT_LIMIT: "context_length_exceeded",
    Reason.UNKNOWN_MODEL: "model_not_found",
    Reason.UNAUTHENTICATED: "invalid_api_key",
    Reason.UNSUPPORTED: "unsupported_parameter",
    Reason.OVERLOADED: "rate_limit_exceeded",
    Reason.TENANT_LIMIT: "rate_limit_exceeded",
}
"""Codes that OpenAI's clients know; every other reason is its own name in lower case."""

TYPES = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
}

NAMES = (
    (re.compile(r"^prompt\.chat\.template_arguments"), "chat_template_kwargs"),
    (re.compile(r"^prompt\.chat\.tools\[(\d+)\]"), r"tools[\1].function"),
    (re.compile(r"^(prompt\.chat\.messages\[\d+\]\.tool_calls\[\d+\])(?!\.id$)"), r"\1.function"),
    (re.compile(r"^prompt\.chat\.(?=\w)"), ""),
    (re.compile(r"^prompt\.chat$"), "messages"),
    (re.compile(r"^(sampling|stopping)\."), ""),
    (re.compile(r"^speculation\."), "paceline."),
    (re.compile(r"^priority$"), "paceline.priority"),
    (re.compile(r"^idempotency_key$"), "Idempotency-Key"),
    (re.compile(r"^timeout$"), "X-Request-Timeout"),
    (re.compile(r"^x-request-id$"), "X-Request-Id"),
)
"""Fields of the gRPC contract and what clients of this one call them."""


class RefusedError(PacelineError):
    """A refusal that only HTTP knows, with its own status."""

    def __init__(
        self, status: HTTPStatus, code: Code, reason: Reason, message: str, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(code, reason, message)
        self.status = status
        self.headers = headers


class NamedError(PacelineError):
    """A refusal whose field already has the client's name."""


def too_large(limit: int) -> RefusedError:
    """The body is longer than allowed."""
    text = f"the body has more than {limit} bytes"
    return RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, Code.RESOURCE_EXHAUSTED, Reason.INVALID_FIELD, text)


def too_slow() -> RefusedError:
    """The body did not come in time."""
    text = "the body of the request did not come in time"
    return RefusedError(HTTPStatus.REQUEST_TIMEOUT, Code.DEADLINE_EXCEEDED, Reason.DEADLINE, text)


def no_json() -> RefusedError:
    """The body is not said to be JSON; a page of another origin can send everything else without asking."""
    text = "the header Content-Type must be application/json"
    return RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, Code.INVALID_ARGUMENT, Reason.MALFORMED, text)


def unknown_path(path: str, served: Iterable[str]) -> RefusedError:
    """Nothing is served there, but perhaps at the path without slashes too many, or behind /v1."""
    parts = [part for part in path[:128].split("/") if part]
    behind = "/".join(itertools.dropwhile(lambda part: part.lower() == "v1", parts))
    meant = next((one for one in served if one in (f"/v1/{behind}", f"/{behind}")), "")
    text = (
        f"nothing is served at {path[:128]!r}; {f'did you mean {meant}?' if meant else '/openapi.json tells what is'}"
    )
    return RefusedError(HTTPStatus.NOT_FOUND, Code.NOT_FOUND, Reason.INVALID_FIELD, text)


def wrong_method(allowed: str) -> RefusedError:
    """Something else may be done there."""
    text = f"the method must be {allowed}"
    headers = (("allow", allowed),)
    return RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, Code.INVALID_ARGUMENT, Reason.INVALID_FIELD, text, headers)


def known(error: BaseException) -> PacelineError:
    """The error itself, or for a defect one with an id that the log repeats."""
    if isinstance(error, PacelineError):
        return error
    identity = secrets.token_hex(4)
    logger.error("unexpected error %s", identity, exc_info=error)
    return PacelineError(Code.INTERNAL, Reason.INTERNAL, f"internal error {identity}")


def status_of(error: PacelineError) -> HTTPStatus:
    """The status of an answer that is this error."""
    if isinstance(error, RefusedError):
        return error.status
    return STATUS.get(error.code, HTTPStatus.INTERNAL_SERVER_ERROR)


def public_name(field: str) -> str:
    """What a client of this contract calls a field of the gRPC contract."""
    for pattern, name in NAMES:
        field = pattern.sub(name, field)
    return field


def renamed(text: str, names: Mapping[str, str]) -> str:
    """A refusal of a chat in the words of another API: `names` are its fields by patterns of those of the chat."""
    for pattern, name in names.items():
        text = re.sub(pattern, name, text)
    return text


def error_reply(error: PacelineError) -> ErrorReply:
    """The error as the body of an answer, or as an event of a stream that has begun."""
    status = status_of(error)
    name = error.field if isinstance(error, NamedError) else public_name(error.field)
    message = error.message
    if error.field and message.startswith(f"{error.field}:"):
        message = f"{name}{message.removeprefix(error.field)}"
    kind = TYPES.get(status, "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error")
    code = CODES.get(error.reason, error.reason.value.lower())
    return {"error": {"message": message, "type": kind, "param": name or None, "code": code}}


def encoded_refusal(error: PacelineError) -> tuple[HTTPStatus, Headers, bytes]:
    """The whole answer to a request that cannot even be read: status, headers and body."""
    body = json.dumps(error_reply(error)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    return status_of(error), headers + error_headers(error), body


def error_headers(error: PacelineError) -> Headers:
    """Headers that belong to the error."""
    headers = [(name.encode(), value.encode()) for name, value in getattr(error, "headers", ())]
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(max(math.ceil(error.retry_after_s), 1)).encode()))
    if error.code is Code.UNAUTHENTICATED:
        headers.append((b"www-authenticate", b"Bearer"))
    return headers
