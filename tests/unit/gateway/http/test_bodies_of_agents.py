"""What coding agents send as their first and second calls: taken, or refused by the name of what they sent.

Refused are tools that a client runs in a form of one maker's models, requests for nothing but what a provider runs,
pictures, what only a store knows, and options of other servers. Tools that a provider runs are left out beside others.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from services.common.request.errors import PacelineError
from services.gateway.http.endpoints.messages import read_message
from services.gateway.http.endpoints.response_bodies import read_response
from services.gateway.http.reading.body import parsed
from services.gateway.http.reading.convert import Headers, chat_query
from services.gateway.http.schema.bodies import ChatBody, CompletionBody
from services.gateway.http.schema.hosted import is_hosted
from services.gateway.intake.query import ChatPrompt
from services.gateway.parsing.form import chosen
from tests.support.cases import each

LINES = Path(__file__).with_name("bodies_of_agents.jsonl").read_text("utf-8").splitlines()
CALLS: dict[str, dict[str, Any]] = {call["name"]: call for call in map(json.loads, LINES)}
MERGED = 2
"""Items at most that follow on one another and are one message."""


def read(call: dict[str, Any]) -> ChatBody | CompletionBody:
    raw = bytearray(json.dumps(call["body"]).encode())
    if call["api"] == "chat":
        return parsed(ChatBody, bytes(raw))
    if call["api"] == "completions":
        return parsed(CompletionBody, bytes(raw))
    return read_response(raw) if call["api"] == "responses" else read_message(raw)


def functions(tool: dict[str, Any]) -> int:
    """How many functions a model is told of for one tool that was sent."""
    return sum(map(functions, tool["tools"])) if "tools" in tool else not is_hosted(tool.get("type"))


@each("name", [name for name, call in CALLS.items() if not call["refused"]])
def test_a_body_of_an_agent_is_taken_with_all_that_it_says(name: str) -> None:
    body, sent = read(CALLS[name]), CALLS[name]["body"]
    if isinstance(body, CompletionBody):
        assert body.prompt == sent["prompt"]
        return
    assert list(body.left_out) == CALLS[name]["left"]
    query = chat_query(body, Headers(), chosen("", "hermes"))
    assert isinstance(query.prompt, ChatPrompt)
    assert len(query.prompt.tools) == sum(map(functions, sent.get("tools") or ()))
    given = sent.get("messages", sent.get("input"))
    assert len(body.messages) >= (1 if isinstance(given, str) else len(given) - MERGED - len(body.left_out))
    first = "" if isinstance(given, str) else given[0].get("role")
    leads = bool(sent.get("system") or sent.get("instructions")) or first in ("system", "developer")
    assert (body.messages[0].role in ("system", "developer")) == leads


@each("name", [name for name, call in CALLS.items() if call["refused"]])
def test_what_cannot_be_had_is_refused_by_the_name_of_what_was_sent(name: str) -> None:
    with pytest.raises(PacelineError) as refusal:
        body = read(CALLS[name])
        assert isinstance(body, ChatBody)
        chat_query(body, Headers(), chosen("", "hermes"))
    assert str(refusal.value).startswith(f"{CALLS[name]['refused']}: ")
