"""What coding agents send as their first and second calls: taken, or refused by the name of what they sent.

Refused are tools that a server would run, pictures, what only a store knows, and options of other servers: each would
change the text.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from services.common.request.errors import PacelineError
from services.gateway.http.endpoints.messages import read_message
from services.gateway.http.endpoints.response_bodies import read_response
from services.gateway.http.reading.body import parsed
from services.gateway.http.schema.bodies import ChatBody, CompletionBody

LINES = Path(__file__).with_name("bodies_of_agents.jsonl").read_text("utf-8").splitlines()
CALLS: dict[str, dict[str, Any]] = {call["name"]: call for call in map(json.loads, LINES)}
MERGED = 2
"""Items at most that follow on one another and are one message."""


def read(call: dict[str, Any]) -> ChatBody | CompletionBody:
    raw = bytearray(json.dumps(call["body"]).encode())
    if call["api"] == "completions":
        return parsed(CompletionBody, bytes(raw))
    return read_response(raw) if call["api"] == "responses" else read_message(raw)


@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if not call["refused"]])
def test_a_body_of_an_agent_is_taken_with_all_that_it_says(name: str) -> None:
    body, sent = read(CALLS[name]), CALLS[name]["body"]
    if isinstance(body, CompletionBody):
        assert body.prompt == sent["prompt"]
        return
    assert len(body.tools or ()) == len(sent.get("tools") or ())
    given = sent.get("messages", sent.get("input"))
    assert len(body.messages) >= (1 if isinstance(given, str) else len(given) - MERGED)
    assert (body.messages[0].role == "system") == bool(sent.get("system") or sent.get("instructions"))


@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call["refused"]])
def test_what_cannot_be_had_is_refused_by_the_name_of_what_was_sent(name: str) -> None:
    with pytest.raises(PacelineError) as refusal:
        read(CALLS[name])
    assert str(refusal.value).startswith(f"{CALLS[name]['refused']}: ")
