"""Thoughts, content and calls of tools are the same parts however the text is cut."""

import codecs
import json
from collections.abc import Iterable, Mapping
from typing import Any

from services.gateway.parsing.calls import CallSplitter
from services.gateway.parsing.form import chosen
from services.gateway.parsing.output import (
    AllContent,
    CallCut,
    CallEnd,
    CallPiece,
    CallStart,
    Content,
    Ending,
    Part,
    Reasoning,
    Splitter,
)
from services.gateway.parsing.reasoning import ReasoningSplitter, opened
from tests.support.cases import each

SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "weather": {"type": "object", "properties": {"town": {"type": "string"}, "days": {"type": "integer"}}},
    "write": {
        "properties": {
            "text": {"type": "string"},
            "lines": {"type": "array"},
            "mode": {"type": ["string", "null"]},
        }
    },
}
HERMES = '<tool_call>\n{"name": "weather", "arguments": {"town": "Köln", "days": 3}}\n</tool_call>'
XML = (
    "<tool_call>\n<function=weather>\n<parameter=town>\nKöln\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
    "</function>\n</tool_call>"
)
CALL = ("weather", {"town": "Köln", "days": 3})
WRITE = (
    "<tool_call><function=write><parameter=text>\n  if a < b:\n    <b>ü</b>\n\n</parameter>"
    '<parameter=lines>[1, {"x": null}]</parameter><parameter=mode>null</parameter></function></tool_call>'
)
WRITTEN = ("write", {"text": "  if a < b:\n    <b>ü</b>\n", "lines": [1, {"x": None}], "mode": None})

Found = tuple[str, str, list[tuple[str, Any]]]
"""Thoughts, content, and calls with the values of their arguments."""

CASES: dict[str, tuple[str, bool, Found]] = {
    "plain text": ("\n Grüße <b> & </think> ", False, ("", "\n Grüße <b> & </think> ", [])),
    "a thought": ("<think>\nhm, ü\n</think>\n\nYes.\n", False, ("hm, ü", "Yes.\n", [])),
    "blanks before the thought": ("\n <think>a  b\n\nc </think>d", False, ("a  b\n\nc", "d", [])),
    "an empty thought": ("<think>\n\n</think>\n\nYes.", False, ("", "Yes.", [])),
    "a thought that the prompt opened": ("a < b </thin> \n</think>\nYes.", True, ("a < b </thin>", "Yes.", [])),
    "a thought that never ends": ("<think>on and on \n", False, ("on and on", "", [])),
    "half a tag": ("<thin", False, ("", "<thin", [])),
    "a block in the middle is content": ("No <think>x</think>", False, ("", "No <think>x</think>", [])),
    "Hermes": (HERMES, False, ("", "", [CALL])),
    "XML": (XML, False, ("", "", [CALL])),
    "words before a call": (f"I look.\n\n{HERMES}\n", False, ("", "I look.", [CALL])),
    "two calls": (f"{HERMES}\n{WRITE}\n", False, ("", "", [CALL, WRITTEN])),
    "a thought, words and a call": (f"<think>hm</think>\n\nOne: {XML}", False, ("hm", "One:", [CALL])),
    "words behind a call": (f"{HERMES}\nSo.", False, ("", "\nSo.", [CALL])),
    "values in the types of their schema": (WRITE, False, ("", "", [WRITTEN])),
    "a call whose closing tag is missing": (HERMES.removesuffix("</tool_call>"), False, ("", "", [CALL])),
    "a call that is cut is content": (HERMES[:40], False, ("", HERMES[:40], [])),
    "no JSON": ("<tool_call>{'name': 1}</tool_call> ", False, ("", "<tool_call>{'name': 1}</tool_call> ", [])),
    "no name": ('<tool_call>{"a": 1}</tool_call>', False, ("", '<tool_call>{"a": 1}</tool_call>', [])),
    "text between parameters": (
        "<tool_call><function=f>x<parameter=a>1</parameter></function></tool_call>",
        False,
        ("", "<tool_call><function=f>x<parameter=a>1</parameter></function></tool_call>", []),
    ),
    "a function without parameters": (
        "<tool_call><function=f>\n</function></tool_call>",
        False,
        ("", "", [("f", {})]),
    ),
    "a parameter without its closing tag": (
        "<tool_call><function=f><parameter=a>1\n<parameter=b>x</parameter></function></tool_call>",
        False,
        ("", "", [("f", {"a": 1, "b": "x"})]),
    ),
    "a tag inside a tag": ("a <tool_<tool_call>{", False, ("", "a <tool_<tool_call>{", [])),
}


def calls() -> CallSplitter:
    return CallSplitter(chosen("<tool_call>"), SCHEMAS)


def splitter(inside: bool) -> Splitter:
    return ReasoningSplitter(calls(), inside, calls)


def read(parts: Iterable[Part]) -> Found:
    thoughts, content = "", ""
    found: list[tuple[str, Any]] = []
    for part in parts:
        if isinstance(part, CallStart):
            name, arguments = part.name, ""
        elif isinstance(part, CallPiece):
            assert part.text
            arguments += part.text
        elif isinstance(part, CallEnd):
            found.append((name, json.loads(arguments)))
        elif isinstance(part, Reasoning):
            assert part.text
            thoughts += part.text
        elif isinstance(part, Content):
            assert part.text
            content += part.text
        else:
            assert part == CallCut()
    return thoughts, content, found


def split(one: Splitter, pieces: Iterable[bytes]) -> Found:
    """Bytes become characters as they do on the way from tokens."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    parts = [part for piece in pieces for part in one.push(decoder.decode(piece))]
    return read([*parts, *one.finish(Ending.ITSELF)])


@each("name", CASES)
def test_parts_are_the_same_wherever_the_bytes_are_cut(name: str) -> None:
    text, inside, expected = CASES[name]
    raw = text.encode()
    assert split(splitter(inside), [raw]) == expected
    assert split(splitter(inside), [bytes([byte]) for byte in raw]) == expected
    for first in range(len(raw) + 1):
        for second in range(first, len(raw) + 1, 7):
            assert split(splitter(inside), [raw[:first], raw[first:second], raw[second:]]) == expected


@each("name", CASES)
def test_text_without_thoughts_or_tools_is_left_alone(name: str) -> None:
    text = CASES[name][0]
    assert split(AllContent(), [text.encode()]) == ("", text, [])


def test_content_is_told_as_soon_as_it_can_be_no_tag() -> None:
    one = splitter(False)
    assert one.push("Hello <to") == [Content("Hello")], "blanks wait, for those before a call are none"
    assert one.push("p") == [Content(" <top")]


def test_a_prompt_may_open_the_block() -> None:
    assert opened("<|im_start|>assistant\n<think>\n")
    assert not opened("<think>\n\n</think>\n\n")
