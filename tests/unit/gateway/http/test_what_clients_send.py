"""What cannot change the text is never refused, nor is history; a refusal names what the client sent."""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from services.common.request.errors import PacelineError
from services.gateway.http.endpoints import messages, responses
from services.gateway.http.endpoints.message_bodies import MessagesBody, chat_of
from services.gateway.http.endpoints.response_bodies import read_response
from services.gateway.http.reading.body import parsed
from services.gateway.http.reading.convert import Headers, chat_query, completion_query
from services.gateway.http.schema.bodies import ChatBody, CompletionBody
from services.gateway.http.schema.errors import error_reply
from services.gateway.http.schema.options import NEUTRAL, REFUSED
from services.gateway.intake.query import ChatPrompt, Query
from services.gateway.parsing.form import chosen
from services.gateway.prompts.text import TextStream
from services.gateway.prompts.tokenizer import Tokenizer
from tests.support.cases import each
from tests.support.fakes_tokenizer import SPECIAL, build_tokenizer

Path = tuple[str | int, ...]
NOTHING: tuple[Any, ...] = (None, "", [], {})
ANYTHING: tuple[Any, ...] = (5, "x", None, True, {"a": [1]}, [{}])
USER = {"role": "user", "content": "x"}
PARAMETERS = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": PARAMETERS, "strict": True}}
CALL: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": "b"}'}}
ASSISTANT: dict[str, Any] = {"role": "assistant", "content": "y", "tool_calls": [CALL], "reasoning_content": "hm"}
RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "z"}]}
FORM = {"type": "json_schema", "json_schema": {"name": "s", "schema": PARAMETERS, "strict": True}}
CHAT: dict[str, Any] = {
    "model": "m", "messages": [USER, ASSISTANT, RESULT], "temperature": 0.5, "stop": ["a"], "tools": [TOOL], "seed": 1,
    "tool_choice": "auto", "stream": True, "stream_options": {"include_usage": True}, "paceline": {"priority": 1},
    "response_format": FORM, "max_tokens": 5, "logit_bias": {"5": 1.0}, "chat_template_kwargs": {"a": [1]}, "n": 1,
    "thinking": {"type": "enabled"},
}  # fmt: skip
COMPLETION: dict[str, Any] = {"model": "m", "prompt": ["x"], "max_tokens": 5, "logprobs": 1, "echo": False, "top_p": 1}
RESPONSE: dict[str, Any] = {
    "model": "m",
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
        {"type": "reasoning", "summary": [], "id": "rs"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "z"},
    ],
    "instructions": "i", "tools": [{"type": "function", "name": "f", "parameters": PARAMETERS, "strict": True}],
    "tool_choice": "auto", "text": {"format": {"type": "json_schema", "name": "s", "schema": PARAMETERS}},
    "reasoning": {"effort": "low"}, "max_output_tokens": 5, "temperature": 0.5, "seed": 1,
}  # fmt: skip
MESSAGE: dict[str, Any] = {
    "model": "m", "max_tokens": 5, "system": [{"type": "text", "text": "s"}], "stop_sequences": ["a"],
    "messages": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": "b"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "z"}]},
    ],
    "tools": [{"name": "f", "input_schema": PARAMETERS}], "tool_choice": {"type": "auto"}, "temperature": 0.5,
    "thinking": {"type": "enabled", "budget_tokens": 5}, "output_config": {"effort": "low"},
}  # fmt: skip


def chat(body: Any) -> Query:
    return chat_query(parsed(ChatBody, json.dumps(body).encode()), Headers(), chosen("", "hermes"))


def response(body: Any) -> Query:
    return chat_query(read_response(bytearray(json.dumps(body).encode())), Headers(), chosen("", "hermes"))


def message(body: Any) -> Query:
    found = chat_of(parsed(MessagesBody, json.dumps(body).encode()))
    return chat_query(found, Headers(), chosen("", "hermes"))


def completion(body: Any) -> Query:
    return completion_query(parsed(CompletionBody, json.dumps(body).encode()), Headers())


APIS: dict[str, tuple[Callable[[Any], Query], dict[str, Any], Callable[[PacelineError], Any]]] = {
    "chat": (chat, CHAT, error_reply),
    "completion": (completion, COMPLETION, error_reply),
    "response": (response, RESPONSE, responses.refusal),
    "message": (message, MESSAGE, messages.refusal),
}
FREE = (
    "parameters",
    "properties",
    "schema",
    "chat_template_kwargs",
    "logit_bias",
    "arguments",
    "input_schema",
    "input",
)
"""Values under these names are the client's own."""


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every place in a body, but those inside of what is the client's own."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, one in items:
        yield (*path, step)
        if step not in FREE or (step == "input" and not path):
            yield from places(one, (*path, step))


def with_value(body: Any, path: Path, value: Any) -> Any:
    changed = copy.deepcopy(body)
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed


def at(body: Any, path: Path) -> Any:
    for step in path:
        body = body[step]
    return body


def name(path: Path) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


@pytest.mark.parametrize("api", APIS)
def test_an_unknown_option_that_says_nothing_is_none(api: str) -> None:
    ask, body, _ = APIS[api]
    plain = ask(body)
    objects = [(), *(path for path in places(body) if isinstance(at(body, path), dict) and path[-1] not in FREE)]
    objects = [path for path in objects if path[-1:] != ("function",) or path[0] != "tools"]  # those are told
    for path in objects:
        for nothing in NOTHING:
            assert ask(with_value(body, (*path, "foo"), nothing)) == plain, path


@pytest.mark.parametrize("api", APIS)
def test_an_unknown_option_that_says_something_is_refused_by_its_name(api: str) -> None:
    ask, body, refuse = APIS[api]
    for value in (5, True, "x", [0], {"a": None}):
        with pytest.raises(PacelineError) as refusal:
            ask(body | {"foo": value, "bar": None})
        assert refuse(refusal.value)["error"]["message"].startswith("foo: ")


@each("option", NEUTRAL)
def test_what_nobody_has_chosen_is_taken(option: str) -> None:
    assert option in REFUSED or option in CompletionBody.model_fields
    for value in NEUTRAL[option]:
        assert chat(CHAT | {option: value}) == chat(CHAT)


@pytest.mark.parametrize("api", APIS)
def test_a_refusal_names_the_place_at_fault_in_the_client_s_words(api: str) -> None:
    """Every place of a body is made another kind of value; a refusal then names it, or what lies in or around it."""
    ask, body, refuse = APIS[api]
    refused = 0
    for path in places(body):
        for wrong in ({"zz": {"y": 1}}, 7.5, "zz", [{"zz": 1}]):
            try:
                ask(with_value(body, path, wrong))
            except PacelineError as error:
                refused += 1
                told = refuse(error)["error"]["message"].partition(": ")[0]
                mine = name(path)
                # In a history what depends on one another may be told at the whole.
                assert told == "input" or told.startswith(mine) or mine.startswith(told), (mine, told)
    assert refused > len([*places(body)])


@pytest.mark.parametrize("api", APIS)
def test_half_a_character_is_refused_by_the_name_of_its_text(api: str) -> None:
    """Clients that cut texts by UTF-16 send such, and a parser of UTF-8 has only a byte's number to say."""
    ask, body, refuse = APIS[api]
    texts = [path for path in places(body) if isinstance(at(body, path), str)]
    for path in texts:
        for half in ("x\ud83d", "\ude00x", "\ud83d\ud83d\ude00"):
            with pytest.raises(PacelineError) as refusal:
                ask(with_value(body, path, half))
            said = refuse(refusal.value)["error"]["message"]
            assert said.startswith(f"{name(path)}: holds half a character, a \\u escape"), said
    assert texts


@pytest.mark.parametrize(
    "data", [b'"\\ud83d', b"{" + b'"\\ud83d":' * 9, b'{"a":"\\ud83d","b":' + b"[" * 9999, b'{"a":"\\ud8zz"}']
)
def test_what_is_no_json_with_half_a_character_is_called_no_json(data: bytes) -> None:
    with pytest.raises(PacelineError, match="not a JSON object"):
        parsed(CompletionBody, data)


@pytest.mark.parametrize(
    ("field", "most"), [("max_tokens", 16), ("seed", -3), ("top_k", 0), ("n", 2), ("min_tokens", 1)]
)
def test_a_whole_number_may_be_written_as_a_fraction(field: str, most: int) -> None:
    """JSON has one kind of number, and JavaScript and Python write 16.0 after a division."""
    for ask, body in ((chat, CHAT), (completion, COMPLETION)):
        assert ask(body | {field: float(most)}) == ask(body | {field: most})
        assert ask(body | {field: float(most), "foo": None}) == ask(body | {field: most})
        for wrong in (most + 0.5, str(most), 1e300, [float(most)]):
            with pytest.raises(PacelineError, match=field):
                ask(body | {field: wrong})


@pytest.mark.parametrize("data", [b"\xef\xbb\xbf%b", b" \n%b\r\n"])
def test_a_body_may_begin_with_the_mark_of_utf_8(data: bytes) -> None:
    """PowerShell and .NET write it; blanks around are JSON's own."""
    body = json.dumps(CHAT).encode()
    for kind in (bytes, bytearray):
        assert parsed(ChatBody, kind(data % body)) == parsed(ChatBody, body)
    with pytest.raises(PacelineError, match="not a JSON object"):
        parsed(ChatBody, b"\xef\xbb\xbf" * 2 + body)


def test_a_call_of_a_custom_tool_is_a_call_with_its_input() -> None:
    for text, expected in (("x = 1", "x = 1"), (None, "")):
        call = {"id": "c1", "type": "custom", "custom": {"name": "f", "input": text}}
        prompt = chat(CHAT | {"messages": [USER, ASSISTANT | {"tool_calls": [call]}, RESULT]}).prompt
        assert isinstance(prompt, ChatPrompt)
        assert prompt.messages[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": {"input": expected}}


HISTORY: dict[str, tuple[Any, Any]] = {
    "arguments as an object": (CALL["function"] | {"arguments": {"a": "b"}}, {"a": "b"}),
    "arguments as a list": (CALL["function"] | {"arguments": "[1]"}, {}),
    "arguments as a list of JSON": (CALL["function"] | {"arguments": [1]}, {}),
    "arguments that are no JSON": (CALL["function"] | {"arguments": '{"a": '}, {}),
    "no arguments": ({"name": "f"}, {}),
    "null": ({"name": "f", "arguments": None}, {}),
}


@pytest.mark.parametrize("case", HISTORY)
def test_a_call_of_history_is_taken_whatever_its_arguments_are(case: str) -> None:
    function, expected = HISTORY[case]
    for call in (
        CALL | {"function": function},
        {"function": function},
        {"id": None, "type": None, "function": function},
    ):
        prompt = chat(CHAT | {"messages": [USER, ASSISTANT | {"tool_calls": [call]}, RESULT]}).prompt
        assert isinstance(prompt, ChatPrompt)
        assert prompt.messages[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": expected}


@pytest.mark.parametrize(
    ("given", "expected"),
    [({"a": "b"}, {"a": "b"}), ('{"a": "b"}', {"a": "b"}), ("x", {}), ("", {}), ([1], {}), (None, {})],
)
def test_a_call_of_history_is_taken_by_all_apis_whatever_its_arguments_are(given: Any, expected: Any) -> None:
    """A client sends back what a model wrote, also where that was no object; what a call gave may be nothing."""
    turn = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": given}]}
    gave = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": None}]}
    items = [
        {"role": "user", "content": "x"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": given},
        {"type": "function_call_output", "call_id": "c", "output": None},
    ]
    for query in (message(MESSAGE | {"messages": [USER, turn, gave]}), response(RESPONSE | {"input": items})):
        assert isinstance(query.prompt, ChatPrompt)
        assert query.prompt.messages[-2]["tool_calls"][0]["function"] == {"name": "f", "arguments": expected}
        assert query.prompt.messages[-1]["content"] == ""


def test_history_is_taken_with_whatever_clients_add_to_it() -> None:
    plain = chat(CHAT)
    for path in [*places(CHAT["messages"]), ()]:
        if isinstance(at(CHAT["messages"], path), dict):
            for more in ANYTHING:
                changed = with_value(CHAT["messages"], (*path, "foo"), more)
                assert chat(CHAT | {"messages": changed}) == plain
    for field in (
        "name",
        "tool_call_id",
        "reasoning_content",
        "reasoning",
        "refusal",
        "audio",
        "annotations",
        "parsed",
    ):
        for odd in (None, 5, {"a": 1}, [1]):
            for role in ("system", "user", "assistant", "tool"):
                chat(CHAT | {"messages": [USER, {"role": role, "content": "x", field: odd}]})


def last(**fields: Any) -> dict[str, Any]:
    prompt = chat(CHAT | {"messages": [USER, fields]}).prompt
    assert isinstance(prompt, ChatPrompt)
    return prompt.messages[-1]


def test_what_carries_text_keeps_its_text() -> None:
    assert last(role="assistant", content="a", reasoning="b")["reasoning_content"] == "b"
    assert last(role="assistant", refusal="no")["content"] == "no"
    parts = [{"type": "thinking", "thinking": "b"}, {"type": "refusal", "refusal": "no"}, {"type": "text", "text": "a"}]
    assert last(role="assistant", content=parts) == {"role": "assistant", "content": "no\na", "reasoning_content": "b"}
    assert last(role="function", name="f", content="z") == {"role": "tool", "content": "z", "name": "f"}
    called = last(role="assistant", content=None, function_call=CALL["function"])["tool_calls"][0]
    assert called["function"] == {"name": "f", "arguments": {"a": "b"}}
    assert last(role="user", content=[{"type": "input_text", "text": "q"}])["content"] == "q"


def test_fields_of_a_tool_that_are_not_known_are_told_to_the_model() -> None:
    tool = {"type": "function", "function": {"x-extra": 1, "name": "f"}, "strict": True, "foo": 1}
    prompt = chat(CHAT | {"tools": [tool], "response_format": None}).prompt
    assert isinstance(prompt, ChatPrompt)
    assert json.dumps(prompt.tools) == json.dumps([{"type": "function", "function": {"x-extra": 1, "name": "f"}}])


def test_a_choice_may_be_an_object_and_among_some_tools() -> None:
    other = {"type": "function", "function": {"name": "g"}}
    body = CHAT | {"tools": [TOOL, other], "response_format": None}
    for word in ("auto", "none", "required"):
        assert chat(body | {"tool_choice": {"type": word}}) == chat(body | {"tool_choice": word})
    for mode in ("auto", "required"):
        allowed = {"mode": mode, "tools": [{"type": "function", "function": {"name": "g"}}]}
        found = chat(body | {"tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}})
        alone = chat(body | {"tools": [other], "tool_choice": mode})
        assert replace(found, constraint=None) == replace(alone, constraint=None)
        if mode == "required":
            assert found.constraint is not None and alone.constraint is not None
            assert found.constraint.text == alone.constraint.text
            assert [one.field for one in found.constraint.parts] == ["tools[1].function.parameters"]
    named = {"type": "function", "name": "f"}
    asked = RESPONSE | {"text": None}
    allowed_in = {"type": "allowed_tools", "mode": "required", "tools": [named]}
    assert response(asked | {"tool_choice": allowed_in}) == response(asked | {"tool_choice": "required"})
    with pytest.raises(PacelineError) as refusal:
        response(asked | {"tool_choice": allowed_in | {"tools": [named, named | {"name": "h"}]}})
    assert responses.refusal(refusal.value)["error"]["param"] == "tool_choice.tools[1].name"


def test_a_nucleus_of_nothing_is_greedy() -> None:
    assert chat(CHAT | {"top_p": 0}).sampling == replace(chat(CHAT).sampling, temperature=0.0)


def test_a_text_may_show_its_stop_string_and_special_tokens() -> None:
    tokenizer = Tokenizer(build_tokenizer(), None)
    ids = [
        *tokenizer.encode("ab", special=False),
        build_tokenizer().get_vocab()[SPECIAL[0]],
        *tokenizer.encode("XYZ", special=False),
    ]
    name = SPECIAL[0]
    for shows_all, shows_stop, expected in (
        (False, False, "abX"), (True, False, f"ab{name}X"), (False, True, "abXY"), (True, True, f"ab{name}XY"),
    ):  # fmt: skip
        query = chat(CHAT | {"skip_special_tokens": not shows_all, "include_stop_str_in_output": shows_stop})
        pieces = tokenizer.showing(None if query.shows_all else frozenset())
        piece = TextStream(pieces, ["Y"], 0, query.shows_stop).push(ids)
        assert (piece.text, piece.stopped) == (expected, True)


SEARCHED = [
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
    {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
]


@pytest.mark.parametrize("left", [SEARCHED, [{"type": "redacted_thinking", "data": "x"}]])
def test_a_turn_of_nothing_but_what_is_left_out_is_no_message_and_is_not_continued(left: list[Any]) -> None:
    turn, said = {"role": "assistant", "content": left}, {"role": "assistant", "content": "y"}
    plain = [{"role": "user", "content": "x"}, said, {"role": "user", "content": "z"}]
    wanted = message(MESSAGE | {"messages": plain})
    for at_ in range(len(plain) + 1):
        assert message(MESSAGE | {"messages": [*plain[:at_], turn, *plain[at_:]]}) == wanted
    beside = {"role": "assistant", "content": [*left, {"type": "text", "text": "y"}]}
    assert message(MESSAGE | {"messages": [plain[0], beside, plain[2]]}) == wanted


def test_tools_that_a_provider_runs_are_no_fault_where_none_may_be_called() -> None:
    hosted = [{"type": "web_search"}]
    for ask, body, none in (
        (chat, CHAT, "none"),
        (chat, CHAT, {"type": "none"}),
        (response, RESPONSE, "none"),
        (message, MESSAGE, {"type": "none"}),
    ):
        plain = {key: value for key, value in body.items() if key not in ("tools", "tool_choice")}
        assert ask(plain | {"tools": hosted, "tool_choice": none}).prompt == ask(plain).prompt
        with pytest.raises(PacelineError, match=r"^tools\[0\]\.type: 'web_search' is a tool"):
            ask(plain | {"tools": hosted})
    servers = [{"type": "url", "url": "https://x", "name": "x"}]
    plain = {key: value for key, value in MESSAGE.items() if key not in ("tools", "tool_choice")}
    assert message(plain | {"mcp_servers": servers, "tool_choice": {"type": "none"}}).prompt == message(plain).prompt
