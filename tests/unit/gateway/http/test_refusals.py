"""What is not offered is refused by the field and the name that the client sent, over each of the other APIs."""

import json
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
BLOCKS = ("image", "document", "search_result", "server_tool_use", "web_search_tool_result", "mcp_tool_use")
ITEMS = ("item_reference", "custom_tool_call", "web_search_call", "mcp_call", "compaction", "file_search_call")


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


@pytest.mark.parametrize("kind", ["bash_20250124", "web_search_20250305", "computer_20250124", "memory_20250818"])
def test_a_tool_that_anthropic_s_servers_run(kind: str) -> None:
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


def test_a_tool_that_openai_s_servers_run() -> None:
    assert told_response({"role": "user", "content": "x"}, tools=[{"type": "web_search"}])[0] == "tools[0].type"


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
