"""Special tokens that are tags of calls or thoughts stand in the text of a chat, and no others do."""

import json

import pytest
from tokenizers import AddedToken

from services.gateway.http.reading.body import parsed
from services.gateway.http.reading.convert import Headers, chat_query
from services.gateway.http.schema.bodies import ChatBody
from services.gateway.parsing.form import tags
from services.gateway.prompts.text import bytes_of
from services.gateway.prompts.tokenizer import Tokenizer
from tests.support.fakes_tokenizer import build_tokenizer

TOOL = {"type": "function", "function": {"name": "f"}}
TAGS = ("<tool_call>", "</tool_call>", "<|python_tag|>", "<think>", "</think>")
OTHER = "<|endoftext|>"


def shown(tools: list[object]) -> frozenset[str]:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": tools}
    return chat_query(parsed(ChatBody, json.dumps(body).encode()), Headers()).shows


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """One in which all of them are special tokens."""
    made = build_tokenizer()
    made.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in (*TAGS, OTHER)])
    return Tokenizer(made, None)


def test_a_chat_with_tools_shows_the_tags_of_all_forms(tokenizer: Tokenizer) -> None:
    assert {*TAGS} <= shown([TOOL]) and tags() <= shown([TOOL])
    text = "".join(f"a{name}b" for name in (*TAGS, OTHER)) + "c"
    assert tokenizer.decode(tokenizer.encode(text)) == "ab" * 6 + "c"
    for names, expected in ((shown([TOOL]), text.replace(OTHER, "")), (frozenset[str](), "ab" * 6 + "c")):
        pieces = bytes_of(tokenizer.showing(names), tokenizer.encode(text))
        assert pieces.decode() == expected


def test_a_chat_without_tools_shows_thoughts_alone(tokenizer: Tokenizer) -> None:
    assert shown([]) == {"<think>", "</think>"}
    text = "<think>a</think>b<tool_call>c"
    pieces = bytes_of(tokenizer.showing(shown([])), tokenizer.encode(text))
    assert pieces.decode() == "<think>a</think>bc"
