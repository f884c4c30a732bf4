"""What is not offered is refused by the field and the name that the client sent, over each of the other APIs."""

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from services.common.request.errors import PacelineError
from services.gateway.http.endpoints import messages, responses
from services.gateway.http.endpoints.messages import read_message
from services.gateway.http.endpoints.response_bodies import read_response
from services.gateway.http.reading.convert import Headers, chat_query
from services.gateway.http.schema.errors import unknown_path

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aa"}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "x"}, IMAGE]}
TOOL = {"name": "f", "input_schema": {"type": "object"}}
BLOCKS = ("image", "file", "video", "tool_reference", "container_upload")
ITEMS = ("item_reference", "compaction", "computer_call", "local_shell_call", "tool_search_output")


def told_message(content: Any, **fields: Any) -> str:
    """The refusal of a message."""
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": content}], **fields}
    with pytest.raises(PacelineError) as refused:
        chat_query(read_message(bytearray(json.dumps(body).encode())), Headers())
    return messages.refusal(refused.value)["error"]["message"]


def told_response(item: Any, **fields: Any) -> tuple[str | None, str]:
    """The field at fault and the refusal of a response."""
    body = {"model": "m", "input": [{"role": "user", "content": "x"}, item], **fields}
    with pytest.raises(PacelineError) as refused:
        chat_query(read_response(bytearray(json.dumps(body).encode())), Headers())
    detail = responses.refusal(refused.value)["error"]
    return detail["param"], detail["message"]


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_block_that_is_not_offered(kind: str) -> None:
    assert told_message([{"type": kind}]).startswith(f"messages[0].content[0].type: '{kind}' is none of")


def test_an_image_in_what_a_tool_gave() -> None:
    assert told_message([RESULT]).startswith("messages[0].content[0].content[1].type:")


@pytest.mark.parametrize("kind", ["bash_20250124", "text_editor_20250728", "computer_20250124", "memory_20250818"])
def test_a_tool_that_a_client_runs_in_a_form_that_one_maker_s_models_know(kind: str) -> None:
    """It has no schema, but that is not what is wrong with it."""
    assert told_message("x", tools=[TOOL, {"type": kind, "name": "b"}]).startswith("tools[1].type:")


def test_a_choice_of_a_tool_without_its_name() -> None:
    assert told_message("x", tools=[TOOL], tool_choice={"type": "tool"}) == (
        "tool_choice.name: is needed with type tool"
    )


@pytest.mark.parametrize("kind", ITEMS)
def test_an_item_that_is_not_offered(kind: str) -> None:
    field, text = told_response({"type": kind, "id": "a"})
    assert (field, text.startswith(f"input[1].type: '{kind}' is none of")) == ("input[1].type", True)


@pytest.mark.parametrize("kind", ["local_shell", "shell", "computer_use_preview", "apply_patch", "tool_search"])
def test_a_tool_that_a_client_runs_in_no_form_of_ours(kind: str) -> None:
    field, text = told_response({"role": "user", "content": "x"}, tools=[{"type": "web_search"}, {"type": kind}])
    assert (field, text.startswith(f"tools[1].type: '{kind}' is none of 'function', 'custom', 'namespace'")) == (
        "tools[1].type",
        True,
    )


@pytest.mark.parametrize("kind", ["web_search", "web_search_preview_2025_03_11", "mcp", "code_interpreter"])
def test_nothing_but_tools_that_a_provider_runs(kind: str) -> None:
    message = {"role": "user", "content": "x"}
    field, text = told_response(message, tools=[{"type": kind}])
    assert (field, text.startswith(f"tools[0].type: '{kind}' is a tool that a provider runs")) == (
        "tools[0].type",
        True,
    )
    function = {"type": "function", "name": "f"}
    both = [function, {"type": kind}]
    assert told_response(message, tools=both, tool_choice={"type": kind})[0] == "tool_choice.type"
    allowed = {"type": "allowed_tools", "tools": [{"type": kind}]}
    assert told_response(message, tools=both, tool_choice=allowed)[0] == "tool_choice.tools[0].type"


def test_places_are_those_of_what_was_sent_where_something_is_left_out() -> None:
    """Names and schemas of functions behind tools that are left out, and in namespaces."""
    message = {"role": "user", "content": "x"}
    search, bad = {"type": "web_search"}, {"type": "function", "name": ""}
    assert told_response(message, tools=[search, bad])[0] == "tools[1].name"
    inner = [{"type": "function", "name": "g"}, {"type": "function", "name": "g"}]
    assert told_response(message, tools=[search, {"type": "namespace", "name": "n", "tools": inner}])[0] == (
        "tools[1].tools[1].name"
    )
    searches = [{"type": "web_search_20250305", "name": "web_search"}, TOOL | {"name": ""}]
    assert told_message("x", tools=searches).startswith("tools[1].name:")


def refused_types(kind: str) -> Iterator[str]:
    """Refusals of an item, a block, a tool and a choice of a type."""
    message, function = {"role": "user", "content": "x"}, {"type": "function", "name": "f"}
    yield told_response({"type": kind})[1]
    yield told_message([{"type": kind}])
    yield told_response(message, tools=[{"type": kind}, function])[1]
    choice = {"type": "allowed_tools", "tools": [{"type": kind}]}
    yield told_response(message, tools=[function], tool_choice=choice)[1]


@pytest.mark.parametrize("kind", ["my tool", "x', 'hosted tool', 'y"])
def test_a_refusal_tells_the_client_s_own_type_and_what_it_may_send(kind: str) -> None:
    for text in refused_types(kind):
        told, _, offered = text.partition(" is none of ")
        assert told.endswith(f".type: {kind!r}")
        assert offered.startswith("'") and "hosted" not in offered and " tool'" not in offered


def test_the_word_for_all_that_is_left_out_is_no_type() -> None:
    for text in refused_types("hosted tool"):
        assert text.endswith(".type: is no type that is known")


def test_servers_that_a_provider_calls_alone() -> None:
    """With tools they are left out."""
    servers = [{"type": "url", "url": "https://x", "name": "s"}]
    assert told_message("x", mcp_servers=servers).startswith("mcp_servers: are called by a provider")
    toolset = {"type": "mcp_toolset", "mcp_server_name": "s"}
    assert told_message("x", mcp_servers=servers, tools=[toolset]).startswith("tools[0].type: 'mcp_toolset'")
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}], "tools": [TOOL]}
    plain = read_message(bytearray(json.dumps(body).encode()))
    both = read_message(bytearray(json.dumps(body | {"mcp_servers": servers, "tools": [TOOL, toolset]}).encode()))
    assert chat_query(both, Headers()) == chat_query(plain, Headers())
    assert {*both.left_out} == {"mcp_servers", "mcp_toolset"}


LONG = "openrouter:" + "a" * 64
"""As long as the type of a tool that a provider runs may be."""


@pytest.mark.parametrize("kind", [LONG, LONG + "a" * 300_000])
def test_a_refusal_repeats_no_long_type(kind: str) -> None:
    message, tool = {"role": "user", "content": "x"}, {"type": "function", "name": "f"}
    choices = [{"type": kind}, {"type": "allowed_tools", "tools": [{"type": kind}]}]
    said = [told_response(message, tools=[tool], tool_choice=choice)[1] for choice in choices]
    said += [told_response(message, tools=[{"type": kind}])[1], told_message("x", tools=[{"type": kind, "name": "n"}])]
    for text in said:
        assert kind[:65] not in text and len(text) < 300


FORMS_OF_NAME: dict[str, dict[str, Any]] = {
    "function": {"type": "function", "name": "n__a"},
    "custom": {"type": "custom", "name": "n__a"},
    "namespace": {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "a"}]},
    "custom in a namespace": {"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "a"}]},
}


@pytest.mark.parametrize(("first", "second"), [pair for pair in product(FORMS_OF_NAME, repeat=2) if len({*pair}) > 1])
def test_two_tools_of_one_name_are_refused_in_either_order(first: str, second: str) -> None:
    """Calls of the one would come back in the form of the other."""
    tools = [FORMS_OF_NAME[first], FORMS_OF_NAME[second]]
    field = "tools[1].tools[0].name" if "namespace" in second else "tools[1].name"
    assert told_response({"role": "user", "content": "x"}, tools=tools)[0] == field


def test_nothing_but_what_a_provider_did() -> None:
    """Nothing is left to answer, with instructions neither."""
    call = {"type": "web_search_call", "id": "a"}
    for more in ({}, {"instructions": "i"}):
        field, text = told_response(call, input=[call], **more)
        assert (field, text) == ("input", "input: holds nothing but what is left out")
    block = {"type": "server_tool_use", "id": "a", "name": "web_search", "input": {}}
    for more in ({}, {"system": "s"}):
        text = told_message([block], **more)
        assert text == "messages: hold nothing but what is left out"


SERVED = ("/v1/models", "/v1/chat/completions", "/tokenize")


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("//v1//chat/completions", "/v1/chat/completions"),
        ("/v1/v1/models", "/v1/models"),
        ("/V1/models", "/v1/models"),
        ("/v1/tokenize", "/tokenize"),
        ("/v1", ""),
        ("/", ""),
        ("/v1/embeddings", ""),
        ("/x" * 200, ""),
    ],
)
def test_a_path_that_is_nearly_served_is_answered_with_that_one(path: str, meant: str) -> None:
    said = str(unknown_path(path, SERVED))
    assert said.endswith(f"; did you mean {meant}?" if meant else "; /openapi.json tells what is")
    assert len(said) < 250
