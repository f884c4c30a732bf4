"""POST /v1/responses: OpenAI's Responses API, without a store."""

import secrets
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from typing_extensions import TypedDict

from services.common.request.errors import PacelineError, Reason
from services.gateway.http.answers.logprobs import Spell
from services.gateway.http.endpoints.response_bodies import ResponseChat
from services.gateway.http.endpoints.response_tools import text_of
from services.gateway.http.endpoints.translated import TranslatedAnswer, named_event
from services.gateway.http.schema.errors import NamedError, error_reply, renamed
from services.gateway.http.schema.hosted import is_hosted
from services.gateway.http.schema.replies import ErrorReply
from services.gateway.http.server.exchange import Exchange, Words
from services.gateway.parsing.form import Form
from services.gateway.parsing.output import CallCut, CallEnd, CallPiece, CallStart, Content, Part, Reasoning

Event = dict[str, Any]
CALLS = ("function_call", "custom_tool_call")


class ResponseReply(TypedDict):
    """The answer to POST /v1/responses."""

    id: str
    object: Literal["response"]
    created_at: int
    status: str
    model: str
    output: list[dict[str, Any]]
    usage: dict[str, Any] | None
    error: None
    incomplete_details: dict[str, str] | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    previous_response_id: None
    reasoning: dict[str, Any]
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: Any
    tools: list[dict[str, Any]]
    top_p: float
    truncation: str


def failed(value: Any) -> bytes:
    """A refusal as the last event of a stream."""
    error = value["error"]
    return named_event({"type": "error", "sequence_number": 0, **{k: error[k] for k in ("code", "message", "param")}})


NAMES = {
    r"\bresponse_format\.json_schema\.schema\b": "text.format.schema",
    r"\bresponse_format\b": "text.format",
    r"\btool_choice\.allowed_tools\b": "tool_choice",
    r"(\btools\[\d+\])\.function\b": r"\1",
    r"^messages\b[\w.\[\]]*": "input",
    r"\bmax_tokens\b": "max_output_tokens",
    r"\breasoning_effort\b": "reasoning.effort",
}
"""Fields of a response by those of the chat that it is."""


def refusal(error: PacelineError) -> ErrorReply:
    """A refusal, in the words of this API."""
    told = error_reply(error)
    if isinstance(error, NamedError) and error.reason is Reason.UNSUPPORTED:
        return told  # what no API knows has the client's own name
    detail = told["error"]
    detail["message"] = renamed(detail["message"], NAMES)
    detail["param"] = renamed(detail["param"], NAMES) if detail["param"] else None
    return told


WORDS = Words(refusal, failed)


class ResponseAnswer(TranslatedAnswer):
    """The items of a response, in the order in which they came."""

    prefix = "resp"

    def __init__(self, body: ResponseChat, exchange: Exchange, spell: Spell, forms: Sequence[Form]) -> None:
        """Nothing has come yet."""
        super().__init__(body, exchange, spell, forms)
        self._body, self._created = body, exchange.created
        self._items: list[Event] = []
        self._open, self._arguments = False, ""
        self._count = 0

    def head(self) -> Iterable[Event]:
        """The response without items."""
        response = self._response("in_progress", [], None)
        return [self._event(f"response.{name}", response=response) for name in ("created", "in_progress")]

    def taken(self, parts: Iterable[Part]) -> list[Event]:
        """Begins, continues and ends items."""
        events: list[Event] = []
        for part in parts:
            if isinstance(part, Content):
                events += self._text("message", part.text)
            elif isinstance(part, Reasoning):
                events += self._text("reasoning", part.text)
            elif isinstance(part, CallStart):
                events += self._start(self._call(part.name))
            elif isinstance(part, CallPiece):
                self._arguments += part.text
                if self._items[-1]["type"] == "function_call":
                    self._items[-1]["arguments"] += part.text
                    events.append(self._of_item("response.function_call_arguments.delta", delta=part.text))
            else:
                events += self._end(part)
        return events

    def close(self) -> list[Event]:
        """The end of the last item, if it is open; one that the end of the answer has cut is not complete."""
        return self._closed("incomplete" if self.finish == "length" else "completed")

    def _closed(self, status: str = "completed") -> list[Event]:
        if not self._open:
            return []
        self._open, item = False, self._items[-1]
        if item["status"] == "in_progress":
            item["status"] = status
        events = self._whole_call(item) if item["type"] in CALLS else self._whole_text(item)
        return [*events, self._event("response.output_item.done", output_index=len(self._items) - 1, item=item)]

    def tail(self) -> Iterable[Event]:
        """The whole response."""
        response = self.reply()
        return [self._event(f"response.{response['status']}", response=response)]

    def reply(self) -> ResponseReply:
        """The whole response; a call that was cut is no item of it."""
        items = [item for item in self._items if item["type"] not in CALLS or item["status"] == "completed"]
        usage = self.usage()
        told = {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {
                "cached_tokens": usage["prompt_tokens_details"]["cached_tokens"],
                "cache_write_tokens": 0,
            },
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": usage["completion_tokens_details"]["reasoning_tokens"]},
            "total_tokens": usage["total_tokens"],
        }
        return self._response("incomplete" if self.finish == "length" else "completed", items, told)

    def _response(self, status: str, output: list[Event], usage: Event | None) -> ResponseReply:
        asked = self._body.asked
        given = asked.model_dump(exclude_none=True, by_alias=True)
        return {
            "id": str(self._head["id"]),
            "object": "response",
            "created_at": self._created,
            "status": status,
            "model": asked.model,
            "output": output,
            "usage": usage,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "metadata": {},
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None, **given.get("reasoning", {})},
            "store": False,
            "temperature": 1.0 if self._body.temperature is None else self._body.temperature,
            "text": {"format": {"type": "text"}, **given.get("text", {})},
            "tool_choice": given.get("tool_choice", "auto"),
            "tools": [_shown(tool) for tool in given.get("tools", ()) if not is_hosted(tool["type"])],
            "top_p": 1.0 if self._body.top_p is None else self._body.top_p,
            "truncation": asked.truncation or "disabled",
        }

    def _text(self, kind: str, text: str) -> list[Event]:
        events: list[Event] = []
        if not (self._open and self._items[-1]["type"] == kind):
            events = self._begin_text(kind)
        self._items[-1]["content"][0]["text"] += text
        more: Event = {"logprobs": []} if kind == "message" else {}
        return [*events, self._of_item(f"response.{_part(kind)}.delta", content_index=0, delta=text, **more)]

    def _begin_text(self, kind: str) -> list[Event]:
        item: Event = {"type": kind, "id": _name("msg" if kind == "message" else "rs"), "status": "in_progress"}
        if kind == "message":
            item["role"] = "assistant"
        else:
            item["summary"] = []
        events = self._start(item | {"content": []})
        part: Event = {"type": _part(kind), "text": ""}
        if kind == "message":
            part |= {"annotations": [], "logprobs": []}
        self._items[-1]["content"] = [part]
        return [*events, self._of_item("response.content_part.added", content_index=0, part=dict(part))]

    def _whole_text(self, item: Event) -> list[Event]:
        part = item["content"][0]
        more: Event = {"logprobs": []} if item["type"] == "message" else {}
        return [
            self._of_item(f"response.{part['type']}.done", content_index=0, text=part["text"], **more),
            self._of_item("response.content_part.done", content_index=0, part=part),
        ]

    def _whole_call(self, item: Event) -> list[Event]:
        if item["type"] == "custom_tool_call":
            text = {"input": item["input"]}
            delta = (
                [self._of_item("response.custom_tool_call_input.delta", delta=item["input"])] if item["input"] else []
            )
            return [*delta, self._of_item("response.custom_tool_call_input.done", **text)]
        done: Event = {"arguments": item["arguments"], "name": item["name"]}
        return [self._of_item("response.function_call_arguments.done", **done)]

    def _call(self, written: str) -> Event:
        """The item of a call that begins, by the name that the client knows; a text is whole at its end alone."""
        name, namespace, custom = self._body.calls.called(written)
        self._arguments = ""
        item: Event = {
            "type": "custom_tool_call" if custom else "function_call",
            "id": _name("ctc" if custom else "fc"),
        }
        item |= {"call_id": _name("call"), "name": name} | ({"namespace": namespace} if namespace else {})
        return item | {"input" if custom else "arguments": "", "status": "in_progress"}

    def _start(self, item: Event) -> list[Event]:
        events = self._closed()
        self._open = True
        self._items.append(item)
        added = self._event("response.output_item.added", output_index=len(self._items) - 1, item=dict(item))
        return [*events, added]

    def _end(self, part: CallEnd | CallCut) -> list[Event]:
        if isinstance(part, CallCut):
            self._items[-1]["status"] = "incomplete"
        elif self._items[-1]["type"] == "custom_tool_call":
            self._items[-1]["input"] = text_of(self._arguments)
        return self._closed()

    def _of_item(self, kind: str, **fields: Any) -> Event:
        return self._event(kind, item_id=self._items[-1]["id"], output_index=len(self._items) - 1, **fields)

    def _event(self, kind: str, **fields: Any) -> Event:
        self._count += 1
        return {"type": kind, "sequence_number": self._count - 1, **fields}


def _shown(tool: Event) -> Event:
    return {"parameters": None, "strict": None, **tool} if tool["type"] == "function" else tool


def _part(kind: str) -> str:
    return "output_text" if kind == "message" else "reasoning_text"


def _name(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"
