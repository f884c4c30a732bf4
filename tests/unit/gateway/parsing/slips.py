"""How models write calls, and the slips they make: texts, and what stands in them.

A value in a call of `write` is checked in every form that can hold it; texts that belong to one form follow.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LINE = '    if a < b: return "x"  # and so on, a line of some text\n'
Found = list[tuple[str, Any]]

TOOLS: dict[str, Any] = {
    "write": {
        "type": "object",
        "properties": {"content": {"type": "string"}, "path": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        "required": ["content"],
    },
    "add": {
        "type": "object",
        "properties": {
            "first": {"type": "integer"},
            "second": {"$ref": "#/$defs/number"},
            "exact": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "unit": {"enum": ["m", 1, None, True]},
            "more": {"type": "object"},
            "loose": {},
            "strange": {"type": [{"a": 1}]},
            "when": {"oneOf": [{"const": "now"}, {"type": "integer"}]},
        },
        "$defs": {"number": {"type": "number"}},
    },
    "now": {"type": "object", "properties": {}},
}


@dataclass(frozen=True)
class Slip:
    """A text in some form, whether its prompt has opened a thought, and what it holds."""

    form: str
    text: str
    calls: Found
    content: str = ""
    thought: str = ""
    opened: bool = False
    shows_ends: bool = False
    """A value holds the whole end of a call, so that a text cut behind it looks like a whole one."""


VALUES = {
    "plain": "hello",
    "empty": "",
    "lines": "def f():\n    return 1\n\n",
    "blanks": "  a  ",
    "quotes": "say \"hi\" and 'ho' \\ \\n",
    "odd characters": "Grüße 日本 👩‍👩‍👧 \u2028 \t é",
    "a closing tag of the block": "a </tool_call> b",
    "a closing tag of a parameter": "a </parameter> b",
    "a closing tag of a parameter on a line": "a\n</parameter>\nb",
    "a closing tag of a function": "a </function> b",
    "an opening tag of the block": "a <tool_call> b",
    "an opening tag of a function": "use <function=NAME or <function= here",
    "tags of HTML": "<html><body class='x'>a < b && c > d</body></html>",
    "both closing tags": "a\n</function>\n</tool_call> b",
    "braces": '{"name": "now", "arguments": {}}\n}}}]]',
    "half tags": "< <p </ </p </par <para <param",
    "a tag of a thought": "<think>a</think> b",
    "null": "null",
    "a number": "03106",
    "Python": "None",
    "an unfinished tag": "a </parameter",
    "many angles": "<" * 40 + ">" * 40,
    "a tag of Llama": "<|python_tag|> and <|eot_id|>",
    "JSON": '{"a": [1, 2, {"b": null}]}',
}
ENDS = {
    "a whole call": "<tool_call>\n<function=now>\n</function>\n</tool_call>",
    "a whole call with a parameter": (
        "as in\n<tool_call>\n<function=write>\n<parameter=content>\nx\n</parameter>\n</function>\n</tool_call>\nso"
    ),
    "the end of a call": "a\n</parameter>\n</function>\n</tool_call>\nb",
    "two whole calls": (
        "<tool_call>\n<function=write>\n<parameter=content>\nx\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=write>\n<parameter=content>\ny\n</parameter>\n</function>\n</tool_call>"
    ),
}


def hermes(name: str, arguments: object) -> str:
    called = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{called}\n</tool_call>"


def xml(name: str, arguments: dict[str, str]) -> str:
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


def llama(name: str, arguments: object) -> str:
    return json.dumps({"name": name, "parameters": arguments}, ensure_ascii=False)


def function(name: str, arguments: object) -> str:
    return f"<function={name}>{json.dumps(arguments, ensure_ascii=False)}</function>"


def python(name: str, arguments: dict[str, Any]) -> str:
    inner = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    return f"<|python_tag|>{name}.call({inner})"


def of_values() -> dict[str, Slip]:
    """Every value in every form."""
    found: dict[str, Slip] = {}
    for name, value in (VALUES | ENDS).items():
        expected: Found = [("write", {"content": value})]
        ends = name in ENDS
        found[f"XML, {name}"] = Slip("qwen_xml", xml("write", {"content": value}), expected, shows_ends=ends)
        found[f"Hermes, {name}"] = Slip("hermes", hermes("write", {"content": value}), expected)
        found[f"Llama, {name}"] = Slip("llama3_json", llama("write", {"content": value}), expected)
        found[f"Llama's function, {name}"] = Slip("llama3_function", function("write", {"content": value}), expected)
        tagged = "<|python_tag|>" + llama("write", {"content": value})
        found[f"Llama's tag, {name}"] = Slip("llama3_python_tag", tagged, expected)
        found[f"Python, {name}"] = Slip("llama3_python_tag", python("write", {"content": value}), expected)
    return found


def typed(key: str, text: str, value: object) -> Slip:
    return Slip("qwen_xml", xml("add", {key: text}), [("add", {key: value})])


OF_TYPES = {
    "text that may be null": Slip(
        "qwen_xml", xml("write", {"content": "a", "path": "12345"}), [("write", {"content": "a", "path": "12345"})]
    ),
    "null that may be text": Slip(
        "qwen_xml", xml("write", {"content": "a", "path": "null"}), [("write", {"content": "a", "path": None})]
    ),
    "Python's True": typed("exact", "True", True),
    "JSON's false": typed("exact", "false", False),
    "a whole number as a float": typed("first", "140.0", 140),
    "a negative one": typed("first", "-3", -3),
    "not a number": typed("second", "NaN", "NaN"),
    "infinity": typed("second", "-Infinity", "-Infinity"),
    "too large a float": typed("second", "1e999", "1e999"),
    "a float by reference": typed("second", "2.50", 2.5),
    "a list": typed("tags", '["a", "b"]', ["a", "b"]),
    "a list of Python": typed("tags", "['a', \"b\", None, True,]", ["a", "b", None, True]),
    "True in capitals": typed("exact", "TRUE", True),
    "one of several numbers as a float": typed("unit", "1.0", 1),
    "one of several texts between blanks": typed("unit", " m ", "m"),
    "no list": typed("tags", "a, b", "a, b"),
    "one of several texts": typed("unit", "m", "m"),
    "one of several numbers": typed("unit", "1", 1),
    "one of several, Python": typed("unit", "True", True),
    "an object": typed("more", '{\n  "a": {"b": [1, 2.0]}\n}', {"a": {"b": [1, 2.0]}}),
    "nothing known": typed("loose", "7", 7),
    "nothing known, text": typed("loose", "seven", "seven"),
    "a strange schema": typed("strange", "text", "text"),
    "a parameter of no schema": typed("other", "x y", "x y"),
    "a constant text": typed("when", "now", "now"),
    "beside a constant": typed("when", "5", 5),
    "many digits": typed("first", "1" * 30, int("1" * 30)),
}

W: tuple[str, Any] = ("write", {"content": "x"})
A: tuple[str, Any] = ("now", {})
XML, NOW = xml("write", {"content": "x"}), xml("now", {})
HERMES = hermes("write", {"content": "x"})
OF_FORMS = {
    "XML, no opening tag": Slip(
        "qwen_xml", "I will write.\n\n" + XML.removeprefix("<tool_call>\n"), [W], content="I will write."
    ),
    "XML, no tags": Slip("qwen_xml", "<function=now>\n</function>", [A]),
    "XML, no closing tag": Slip("qwen_xml", XML.removesuffix("\n</tool_call>"), [W]),
    "XML, two calls": Slip("qwen_xml", f"{XML}\n{NOW}", [W, A]),
    "XML, two calls in one block": Slip(
        "qwen_xml", XML.removesuffix("</tool_call>") + NOW.removeprefix("<tool_call>\n"), [W, A]
    ),
    "XML, text before and after": Slip("qwen_xml", f"One: {XML}\nThen.", [W], content="One:\nThen."),
    "XML, a thought": Slip("qwen_xml", f"hm\n</think>\n\n{XML}", [W], thought="hm", opened=True),
    "XML, in a thought": Slip("qwen_xml", f"I should write.\n{XML}", [W], thought="I should write.", opened=True),
    "XML, in a thought that the model opened": Slip("qwen_xml", f"<think>\nhm\n{XML}", [W], thought="hm"),
    "XML, two calls in a thought": Slip("qwen_xml", f"hm\n{XML}\n{NOW}\n", [W, A], thought="hm", opened=True),
    "XML, a call in a thought that ends": Slip(
        "qwen_xml", f"I could {NOW} or\n</think>\n\nNo.", [], "No.", f"I could {NOW} or", opened=True
    ),
    "XML, a call in and behind a thought": Slip(
        "qwen_xml", f"a {NOW} b</think>{XML}", [W], thought=f"a {NOW} b", opened=True
    ),
    "XML, tags in a thought": Slip(
        "qwen_xml", "use <tool_call> or <function=, then\n</think>\nYes.", [], "Yes.",
        "use <tool_call> or <function=, then", opened=True,
    ),
    "XML, the end of a thought in a value in a thought": Slip(
        "qwen_xml", "hm\n" + xml("write", {"content": "a </think> b"}), [("write", {"content": "a </think> b"})],
        thought="hm", opened=True,
    ),
    "XML, no closing tags of parameters": Slip(
        "qwen_xml",
        "<tool_call>\n<function=write>\n<parameter=content>\na\n<parameter=path>\nb\n</function>\n</tool_call>",
        [("write", {"content": "a", "path": "b"})],
    ),
    "XML, on one line": Slip(
        "qwen_xml",
        "<tool_call><function=write><parameter=content>x</parameter></function></tool_call>",
        [W],
    ),
    "XML, a function that was not offered, without tags": Slip(
        "qwen_xml", "so <function=foo>\n</function>", [], content="so <function=foo>\n</function>"
    ),
    "XML, a function that was not offered": Slip("qwen_xml", xml("foo", {"a": "1"}), [("foo", {"a": 1})]),
    "XML, about tags": Slip("qwen_xml", "Write <tool_call> first.", [], content="Write <tool_call> first."),
    "XML, two parameters": Slip(
        "qwen_xml", xml("write", {"content": "a\n", "path": "/b"}), [("write", {"content": "a\n", "path": "/b"})]
    ),
    "Hermes, no closing tag": Slip("hermes", HERMES.removesuffix("\n</tool_call>"), [W]),
    "Hermes, no opening tag": Slip("hermes", HERMES.removeprefix("<tool_call>\n"), [W]),
    "Hermes, two in a block": Slip(
        "hermes", HERMES.removesuffix("</tool_call>") + hermes("now", {}).removeprefix("<tool_call>\n"), [W, A]
    ),
    "Hermes, a list in a block": Slip(
        "hermes",
        '<tool_call>[{"name": "now", "arguments": {}}, {"name": "write", "arguments": {"content": "x"}}]</tool_call>',
        [A, W],
    ),
    "Hermes, two blocks": Slip("hermes", f"{HERMES}\n{hermes('now', {})}\n", [W, A]),
    "Hermes, text around": Slip("hermes", f"So:\n{HERMES}\n\nDone.", [W], content="So:\n\nDone."),
    "Hermes, arguments as text": Slip("hermes", hermes("write", '{"content": "x"}'), [W]),
    "Hermes, arguments first": Slip(
        "hermes", '<tool_call>{"arguments": {"content": "x"}, "name": "write"}</tool_call>', [W]
    ),
    "Hermes, no arguments": Slip("hermes", '<tool_call>{"name": "now"}</tool_call>', [A]),
    "Hermes, null": Slip("hermes", '<tool_call>{"name": "now", "arguments": null}</tool_call>', [A]),
    "Hermes, an id and a type": Slip(
        "hermes", '<tool_call>{"id": 1, "type": "function", "name": "now", "arguments": {}}</tool_call>', [A]
    ),
    "Hermes, the last brace is missing": Slip(
        "hermes", '<tool_call>\n{"name": "write", "arguments": {"content": "x"}\n</tool_call>', [W]
    ),
    "Hermes, a brace too many": Slip(
        "hermes", '<tool_call>\n{"name": "write", "arguments": {"content": "x"}}}\n</tool_call>', [W]
    ),
    "Hermes, Python's names": Slip(
        "hermes", '<tool_call>{"name": "f", "arguments": {"a": True, "b": None}}</tool_call>',
        [("f", {"a": True, "b": None})],
    ),
    "Hermes, single quotes": Slip(
        "hermes",
        "<tool_call>{'name': 'f', 'arguments': {'a': 'it\\'s \"x\"'}}</tool_call>", [("f", {"a": 'it\'s "x"'})]
    ),
    "Hermes, not a number": Slip(
        "hermes", '<tool_call>{"name": "f", "arguments": {"a": NaN, "b": -1.5e3}}</tool_call>',
        [("f", {"a": "NaN", "b": -1500.0})],
    ),
    "Hermes, lines in a text": Slip(
        "hermes", '<tool_call>{"name": "write", "arguments": {"content": "a\n\tb"}}</tool_call>',
        [("write", {"content": "a\n\tb"})],
    ),
    "Hermes, escapes that JSON does not have": Slip(
        "hermes",
        '<tool_call>{"name": "write", "arguments": {"content": "\\d+ \\u12 \\ud800 \\ud83d\\ude00"}}</tool_call>',
        [("write", {"content": "\\d+ \\u12 \ufffd 😀"})],
    ),
    "Hermes, a comma too many": Slip(
        "hermes", '<tool_call>{"name": "f", "arguments": {"a": [1, 2,],},}</tool_call>', [("f", {"a": [1, 2]})]
    ),
    "Hermes, no JSON": Slip(
        "hermes", '<tool_call>{"name": "f", "arguments": {"a": b}}</tool_call>', [],
        content='<tool_call>{"name": "f", "arguments": {"a": b}}</tool_call>',
    ),
    "Hermes, no JSON, then a call": Slip(
        "hermes", '<tool_call>{"name": "f", "arguments": {"a": b}}</tool_call>\n' + HERMES, [W],
        content='<tool_call>{"name": "f", "arguments": {"a": b}}</tool_call>',
    ),
    "Hermes, an answer in JSON": Slip(
        "hermes", '{"name": "Ada", "arguments": ["x"]}', [], content='{"name": "Ada", "arguments": ["x"]}'
    ),
    "Hermes, in a thought": Slip("hermes", f"hm\n{HERMES}", [W], thought="hm", opened=True),
    "Llama, JSON": Slip("llama3_json", llama("write", {"content": "x"}), [W]),
    "Llama, a type beside": Slip("llama3_json", '{"type": "function", "name": "now", "parameters": {}}', [A]),
    "Llama, the name as function": Slip(
        "llama3_json", '{"type": "function", "function": "now", "parameters": {}}', [A]
    ),
    "Llama, two calls": Slip("llama3_json", f"{llama('now', {})}; {llama('write', {'content': 'x'})}", [A, W]),
    "Llama, two lines": Slip("llama3_json", f"{llama('now', {})}\n{llama('write', {'content': 'x'})}", [A, W]),
    "Llama, text before": Slip("llama3_json", f"Sure.\n{llama('now', {})}", [A], content="Sure."),
    "Llama, a function that was not offered": Slip(
        "llama3_json", '{"name": "foo", "parameters": {}}', [], content='{"name": "foo", "parameters": {}}'
    ),
    "Llama, code": Slip("llama3_json", 'f = {"name": 1}\n{\n  "a": 2}', [], content='f = {"name": 1}\n{\n  "a": 2}'),
    "Llama's tag, two calls": Slip(
        "llama3_python_tag", f"<|python_tag|>{llama('now', {})}; {llama('write', {'content': 'x'})}", [A, W]
    ),
    "Python, no arguments": Slip("llama3_python_tag", "<|python_tag|>now.call()", [A]),
    "Python, several": Slip(
        "llama3_python_tag", "<|python_tag|>add.call(first=1, tags=['a', 'b'], exact=False)",
        [("add", {"first": 1, "tags": ["a", "b"], "exact": False})],
    ),
    "Python, code": Slip(
        "llama3_python_tag", "<|python_tag|>print(now.call)", [], content="<|python_tag|>print(now.call)"
    ),
}  # fmt: skip

LONG: dict[str, Callable[[int], str]] = {
    "hermes": lambda size: hermes("write", {"content": LINE * (size // len(LINE))}),
    "qwen_xml": lambda size: xml("write", {"content": LINE * (size // len(LINE))}),
    "llama3_json": lambda size: llama("write", {"content": LINE * (size // len(LINE))}),
    "llama3_function": lambda size: function("write", {"content": LINE * (size // len(LINE))}),
    "llama3_python_tag": lambda size: python("write", {"content": LINE * (size // len(LINE))}),
}
"""Calls of about so many characters."""

SLIPS = of_values() | {f"XML, {name}": slip for name, slip in OF_TYPES.items()} | OF_FORMS
