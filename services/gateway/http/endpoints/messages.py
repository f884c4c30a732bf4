"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's API."""

import json
import secrets
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from services.common.request.errors import PacelineError
from services.common.request.sampling import FinishReason
from services.gateway.http.endpoints.message_bodies import CountBody, MessagesBody, chat_of
from services.gateway.http.endpoints.message_hints import ThreadError
from services.gateway.http.endpoints.translated import TranslatedAnswer, named_event
from services.gateway.http.reading.body import Bodies, parsed
from services.gateway.http.reading.convert import Headers, chat_query
from services.gateway.http.schema.bodies import ChatBody
from services.gateway.http.schema.errors import error_reply, renamed, status_of
from services.gateway.http.server.exchange import Exchange, Words, encoded
from services.gateway.intake.query import Prompt, prompt_cost
from services.gateway.parsing.output import CallCut, CallEnd, CallPiece, CallStart, Content, Part, Reasoning
from services.gateway.streams.request_factory import RequestFactory
from services.gateway.streams.streams import Streams
from services.gateway.tenancy.auth import current_tenant

KINDS = {
    HTTPStatus.BAD_REQUEST: "invalid_request_error",
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "overloaded_error",
    HTTPStatus.GATEWAY_TIMEOUT: "timeout_error",
}
NAMES = {
    r"\bresponse_format\.json_schema\.schema\b": "output_config.format.schema",
    r"(\btools\[\d+\])\.function\.parameters\b": r"\1.input_schema",
    r"(\btools\[\d+\])\.function\b": r"\1",
    r"^stop\b": "stop_sequences",
    r"\breasoning_effort\b": "output_config.effort",
}
"""Fields of a message by those of the chat that it is."""
REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessageReply(TypedDict):
    """The answer to POST /v1/messages."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: str | None
    stop_sequence: str | None
    usage: dict[str, int]


class CountReply(TypedDict):
    """The answer to POST /v1/messages/count_tokens."""

    input_tokens: int


class Refused(TypedDict):
    """What is wrong; `details` are for a client that knows how to go on."""

    type: str
    message: str
    details: NotRequired[dict[str, Any]]


class MessageRefusal(TypedDict):
    """A refusal of both."""

    type: Literal["error"]
    error: Refused


def refusal(error: PacelineError) -> MessageRefusal:
    """A refusal as Anthropic's clients read it."""
    status = status_of(error)
    kind = KINDS.get(status, "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "api_error")
    said = renamed(error_reply(error)["error"]["message"], NAMES)
    found: Refused = {"type": kind, "message": said}
    if isinstance(error, ThreadError):
        found["details"] = error.details
    return {"type": "error", "error": found}


WORDS = Words(refusal, named_event)


def read_message(raw: bytearray) -> ChatBody:
    """The chat that a body is.

    Raises:
        PacelineError: it is invalid.
    """
    body = parsed(MessagesBody, raw)
    body.check()
    return chat_of(body)


class MessageAnswer(TranslatedAnswer):
    """The blocks of a message, in the order in which they came."""

    prefix = "msg"
    _open = False

    def head(self) -> Iterable[dict[str, Any]]:
        """The message without content."""
        usage = {"input_tokens": self.prompt_tokens, "output_tokens": 0}
        self._blocks: list[dict[str, Any]] = []
        self._arguments: list[str] = []
        return [{"type": "message_start", "message": self._message([], None, None, usage)}]

    def taken(self, parts: Iterable[Part]) -> list[dict[str, Any]]:
        """Begins, continues and ends blocks."""
        events: list[dict[str, Any]] = []
        for part in parts:
            if isinstance(part, Content):
                events += self._text("text", "text_delta", part.text)
            elif isinstance(part, Reasoning):
                events += self._text("thinking", "thinking_delta", part.text)
            elif isinstance(part, CallStart):
                call = {"type": "tool_use", "id": f"toolu_{secrets.token_hex(12)}", "name": part.name, "input": {}}
                events += self._start(call)
            elif isinstance(part, CallPiece):
                self._arguments.append(part.text)
                events.append(self._delta({"type": "input_json_delta", "partial_json": part.text}))
            else:
                events += self._end(part)
        return events

    def close(self) -> list[dict[str, Any]]:
        """The end of the open block."""
        if not self._open:
            return []
        self._open = False
        return [{"type": "content_block_stop", "index": len(self._blocks) - 1}]

    def tail(self) -> Iterable[dict[str, Any]]:
        """Why it ended, and its usage."""
        reason, stopped = self._reason()
        delta = {"stop_reason": reason, "stop_sequence": stopped}
        return [{"type": "message_delta", "delta": delta, "usage": self._usage()}, {"type": "message_stop"}]

    def reply(self) -> MessageReply:
        """The whole message."""
        blocks = [block for block in self._blocks if block["type"] != "cut"]
        return self._message(blocks, *self._reason(), self._usage())

    def _message(self, content: list[Any], reason: str | None, stopped: str | None, usage: Any) -> MessageReply:
        return {
            "id": str(self._head["id"]),
            "type": "message",
            "role": "assistant",
            "model": str(self._head["model"]),
            "content": content,
            "stop_reason": reason,
            "stop_sequence": stopped,
            "usage": usage,
        }

    def _text(self, kind: str, delta: str, text: str) -> list[dict[str, Any]]:
        events = []
        if not (self._open and self._blocks[-1]["type"] == kind):
            events = self._start({"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {}))
        self._blocks[-1][kind] += text
        return [*events, self._delta({"type": delta, kind: text})]

    def _start(self, block: dict[str, Any]) -> list[dict[str, Any]]:
        events = self.close()
        self._open, self._arguments = True, []
        self._blocks.append(dict(block))
        return [*events, {"type": "content_block_start", "index": len(self._blocks) - 1, "content_block": block}]

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": delta}

    def _end(self, part: CallEnd | CallCut) -> list[dict[str, Any]]:
        if isinstance(part, CallEnd):
            self._blocks[-1]["input"] = json.loads("".join(self._arguments))
        else:
            self._blocks[-1]["type"] = "cut"
        return self.close()

    def _reason(self) -> tuple[str, str | None]:
        if self.final.reason is FinishReason.STOP_STRING and self.finish == "stop":
            return "stop_sequence", self.final.matched
        return REASONS[self.finish], None

    def _usage(self) -> dict[str, int]:
        usage = self.usage()
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return {
            "input_tokens": usage["prompt_tokens"] - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": usage["completion_tokens"],
        }


class CountTokens:
    """Tokens of the prompt that a message would have; it counts as a request while it runs."""

    def __init__(self, front: RequestFactory, streams: Streams, bodies: Bodies) -> None:
        """Takes the tokenizer's owner, admission, and what reads bodies."""
        self._front = front
        self._streams = streams
        self._bodies = bodies

    async def __call__(self, exchange: Exchange) -> None:
        """Answers one request.

        Raises:
            PacelineError: the body is invalid, or no target has said yet what it serves.
        """

        def read(raw: bytearray) -> tuple[str, Prompt]:
            body = parsed(CountBody, raw)
            return body.model, chat_query(chat_of(body), Headers()).prompt

        with self._streams.entrance.admitted() as ticket:
            name, prompt = await self._bodies.read(exchange, read)
            ticket.queue(prompt_cost(prompt))
            ids = await self._front.tokens(prompt, await self._front.model(name), current_tenant())
        reply: CountReply = {"input_tokens": len(ids)}
        await exchange.reply(encoded(reply))
