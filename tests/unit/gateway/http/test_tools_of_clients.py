"""Tools that a client runs in other forms than functions come back in these, and what a provider runs is told once."""

import json
import logging
from typing import Any

import pytest

from services.common.request.errors import PacelineError
from services.common.request.sampling import FinishReason
from services.gateway.http.endpoints.response_bodies import ResponseChat, read_response
from services.gateway.http.endpoints.responses import ResponseAnswer
from services.gateway.http.reading.convert import Headers, chat_query, tools_of
from services.gateway.http.schema.bodies import ChatBody
from services.gateway.http.schema.options import MOST_AGENT, IgnoredLog
from services.gateway.intake.query import ChatPrompt
from services.gateway.parsing.form import chosen
from services.gateway.streams.events import Delta
from tests.unit.gateway.http.test_options import PAGE
from tests.unit.gateway.parsing.test_call_corpus import EXCHANGE, MARK, final

PATCH = '*** Begin Patch\n+say "</tool_call>" \\ {"input": 1}\n*** End Patch\u2028'
FORMAT = {"type": "grammar", "syntax": "lark", "definition": "start: begin hunk+ end"}
TOOLS: list[dict[str, Any]] = [
    {"type": "web_search"},
    {"type": "function", "name": "find", "parameters": {"type": "object"}},
    {"type": "custom", "name": "apply_patch", "description": "d", "format": FORMAT},
    {"type": "namespace", "name": "mcp__docs__", "tools": [{"type": "function", "name": "find", "parameters": {}}]},
    {"type": "namespace", "name": "crm", "tools": [{"type": "custom", "name": "note"}]},
]
CALLED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "find": ({"q": 1}, {"type": "function_call", "name": "find", "arguments": '{"q": 1}'}),
    "mcp__docs__find": (
        {"q": 1},
        {"type": "function_call", "name": "find", "namespace": "mcp__docs__", "arguments": '{"q": 1}'},
    ),
    "apply_patch": ({"input": PATCH}, {"type": "custom_tool_call", "name": "apply_patch", "input": PATCH}),
    "crm__note": (
        {"input": ""},
        {"type": "custom_tool_call", "name": "note", "namespace": "crm", "input": ""},
    ),
}


def asked(items: Any = "x", **fields: Any) -> ResponseChat:
    return read_response(bytearray(json.dumps({"model": "m", "input": items, "tools": TOOLS} | fields).encode()))


def answer(
    pieces: list[str], stream: bool, end: FinishReason = FinishReason.STOP_TOKEN
) -> tuple[ResponseAnswer, bytes]:
    made = ResponseAnswer(asked(stream=stream), EXCHANGE, lambda _: (MARK, b""), chosen("", "hermes"))
    made.begin(0, ())
    sent = b"".join(event for piece in pieces for event in made.messages(0, Delta(0, (), piece)))
    return made, sent + b"".join(made.messages(0, final(end)))


def written(name: str, arguments: dict[str, Any]) -> str:
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


@pytest.mark.parametrize("name", CALLED)
def test_a_call_comes_back_in_the_form_of_its_tool_streamed_and_whole_and_is_taken_when_sent_back(name: str) -> None:
    arguments, wanted = CALLED[name]
    text = written(name, arguments)
    whole = json.loads(answer([text], False)[0].whole())["output"]
    assert [{key: one for key, one in item.items() if key not in ("id", "call_id")} for item in whole] == [
        wanted | {"status": "completed"}
    ]
    made, sent = answer([*text], True)
    lines = (sent + made.ending()).decode().split("\n")
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert [event["sequence_number"] for event in events] == [*range(len(events))]
    done = next(event["item"] for event in events if event["type"] == "response.output_item.done")
    drop = {"id": None, "call_id": None}
    assert done | drop == whole[0] | drop
    kind = "custom_tool_call_input" if wanted["type"] == "custom_tool_call" else "function_call_arguments"
    pieces = "".join(event["delta"] for event in events if event["type"] == f"response.{kind}.delta")
    assert pieces == wanted.get("input", wanted.get("arguments"))
    output = {"type": f"{wanted['type']}_output", "call_id": whole[0]["call_id"], "output": "ok"}
    prompt = chat_query(asked([{"role": "user", "content": "x"}, *whole, output]), Headers()).prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.messages[1]["tool_calls"][0]["function"] == {"name": name, "arguments": arguments}
    assert prompt.messages[2]["content"] == "ok"


@pytest.mark.parametrize("end", [FinishReason.LENGTH, FinishReason.STOP_TOKEN])
def test_a_text_that_is_cut_is_no_call(end: FinishReason) -> None:
    text = written("apply_patch", {"input": PATCH})
    for cut in range(len("<tool_call>\n"), len(text) - len("}\n</tool_call>")):
        made, _ = answer([text[:cut]], False, end)
        assert not [item for item in json.loads(made.whole())["output"] if item["type"] == "custom_tool_call"]


def test_a_text_that_the_model_wrote_as_something_else_is_told_as_it_was_written() -> None:
    made, _ = answer([written("apply_patch", {"patch": "a", "b": 1})], False)
    assert json.loads(made.whole())["output"][0]["input"] == '{"patch": "a", "b": 1}'


def test_a_grammar_of_a_text_is_told_to_the_model() -> None:
    prompt = chat_query(asked(), Headers()).prompt
    assert isinstance(prompt, ChatPrompt)
    tools = {tool["function"]["name"]: tool["function"] for tool in prompt.tools}
    assert [*tools] == ["find", "apply_patch", "mcp__docs__find", "crm__note"]
    told = tools["apply_patch"]["parameters"]["properties"]["input"]["description"]
    assert told == "A text of this grammar (lark):\nstart: begin hunk+ end"


def test_the_description_of_a_namespace_is_not_told_to_the_model_and_the_page_says_so() -> None:
    described = [tool | {"description": "of all"} if tool["type"] == "namespace" else tool for tool in TOOLS]
    assert chat_query(asked(tools=described), Headers()) == chat_query(asked(), Headers())
    assert "the description of a namespace is not told to the model" in PAGE


def test_tools_that_are_left_out_are_no_tools_of_the_answer() -> None:
    made, _ = answer(["x"], False)
    assert [tool["type"] for tool in json.loads(made.whole())["tools"]] == [
        "function",
        "custom",
        "namespace",
        "namespace",
    ]


def test_the_log_keeps_no_more_of_a_type_than_it_writes(caplog: pytest.LogCaptureFixture) -> None:
    log, function = IgnoredLog(), TOOLS[1]
    body = asked(tools=[function, {"type": f"openrouter:{'a' * 64}"}])
    long = ChatBody.model_validate({"model": "m", "messages": [{"role": "user", "content": "x"}]})
    long._left = ("a" * 300_000, "a" * 300_001)
    with caplog.at_level(logging.INFO):
        log.tell("a", "codex", body)
        log.tell("a", "codex", long)
    assert [len(vars(line)["kind"]) for line in caplog.records if "kind" in vars(line)] == [75, MOST_AGENT]
    assert max(len(part) for keys in log._told.values() for key in keys for part in key) <= MOST_AGENT


def test_types_that_a_client_invents_have_one_line(caplog: pytest.LogCaptureFixture) -> None:
    log, function = IgnoredLog(), TOOLS[1]
    invented = [f"openrouter:{number:x}" for number in range(300)]
    invented += [f"web_search_2025{month:02}{day:02}" for month in range(1, 13) for day in range(1, 29)]
    with caplog.at_level(logging.INFO):
        for type_ in invented:
            log.tell("a", "codex", asked(tools=[function, {"type": type_}]))
    assert [vars(line)["kind"] for line in caplog.records if "kind" in vars(line)] == [
        "openrouter:0",
        "web_search_20250101",
    ]


@pytest.mark.parametrize("same", [True, False])
def test_one_name_is_that_of_one_function(same: bool) -> None:
    """A tool that is sent twice is one; a call of two that differ would be of nobody knows which."""
    function = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}
    other = function if same else {**function, "parameters": {"type": "object", "properties": {"b": {}}}}
    sent = [
        {"type": kept["type"], "function": {k: v for k, v in kept.items() if k != "type"}} for kept in (function, other)
    ]
    chat = ChatBody.model_validate({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": sent})
    for body, place in ((chat, "tools[1].function.name"), (asked(tools=[function, other]), "tools[1].name")):
        if same:
            assert len(tools_of(body)) == 2
            continue
        with pytest.raises(PacelineError, match="another tool's name too") as refused:
            tools_of(body)
        assert refused.value.field == place


@pytest.mark.parametrize("size", [65, 300_000])
def test_a_long_type_is_none_that_a_provider_runs(size: int) -> None:
    with pytest.raises(PacelineError, match=r"^tools\[1\]\.type: "):
        asked(tools=[TOOLS[1], {"type": f"openrouter:{'a' * size}"}])


def test_what_is_left_out_is_told_once_for_each_client(caplog: pytest.LogCaptureFixture) -> None:
    log, body = IgnoredLog(), asked([{"role": "user", "content": "x"}, {"type": "mcp_call", "id": "a"}])
    with caplog.at_level(logging.INFO):
        for agent in ("codex", "codex", "other"):
            log.tell("a", agent, body)
    told = [(vars(line)["user_agent"], vars(line)["kind"]) for line in caplog.records if "kind" in vars(line)]
    assert told == [("codex", "mcp_call"), ("codex", "web_search"), ("other", "mcp_call"), ("other", "web_search")]
