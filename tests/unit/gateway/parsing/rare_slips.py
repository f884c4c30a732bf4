"""Rarer slips: other line ends, wrappers of another API, tags twice or missing, lists, two thoughts."""

import json

from tests.unit.gateway.parsing.slips import HERMES, NOW, XML, A, Found, Slip, W, hermes, llama, typed, xml

T, E = "<tool_call>", "</tool_call>"
CALL = '{"name":"write","arguments":{"content":"x"}}'
WRITE = f"{T}\n<function=write>\n<parameter=content>\nx\n"
N, X = llama("now", {}), llama("write", {"content": "x"})
GAPS = {"CRLF": "\r\n", "tabs": "\t", "nothing": "", "lines": "\n\n\n", "blanks": "  ", "a no-break space": "\u00a0"}


def of(form: str, slips: dict[str, tuple[str, Found]], **more: object) -> dict[str, Slip]:
    """Slips of a form by text and calls."""
    return {f"{form}, {name}": Slip(form, text, calls, **more) for name, (text, calls) in slips.items()}  # type: ignore[arg-type]


def none(form: str, texts: dict[str, str]) -> dict[str, Slip]:
    """Texts without any call."""
    return {f"{form}, {name}": Slip(form, text, [], content=text) for name, text in texts.items()}


def wrapped(arguments: object) -> str:
    called = {"id": "call_1", "type": "function", "function": {"name": "write", "arguments": arguments}}
    return f"{T}{json.dumps(called)}{E}"


OF_HERMES = of("hermes", {f"{name} around": (f"{T}{gap}{CALL}{gap}{E}", [W]) for name, gap in GAPS.items()}) | of(
    "hermes",
    {
        "the function as an object": (wrapped({"content": "x"}), [W]),
        "the function as an object, arguments as text": (wrapped('{"content": "x"}'), [W]),
        "args": (f'{T}{{"name":"write","args":{{"content":"x"}}}}{E}', [W]),
        "input": (f'{T}{{"name":"write","input":{{"content":"x"}}}}{E}', [W]),
        "blanks in the name": (f'{T}{{"name":" now ","arguments":{{}}}}{E}', [A]),
        "an empty list of arguments": (f'{T}{{"name":"now","arguments":[]}}{E}', [A]),
        "an empty text of arguments": (f'{T}{{"name":"now","arguments":""}}{E}', [A]),
        "arguments as text in text": (hermes("write", json.dumps('{"content": "x"}')), [W]),
        "a key twice": (f'{T}{{"name":"write","arguments":{{"content":"a","content":"x"}}}}{E}', [W]),
        "two opening tags": (f"{T}{T}\n{CALL}\n{E}", [W]),
        "two closing tags": (f"{HERMES}\n{E}", [W]),
        "an opening tag between calls": (f'{T}\n{CALL}\n{T}\n{{"name":"now"}}\n{E}', [W, A]),
        "a list without tags": (f'[{{"name":"now","arguments":{{}}}},{CALL}]', [A, W]),
        "a list on lines": (f"[\n  {CALL},\n  {CALL}\n]\n", [W, W]),
        "brackets and braces in a text": (hermes("write", {"content": "}}}{{[]"}), [("write", {"content": "}}}{{[]"})]),
        "surrogates": (
            f'{T}{{"name":"write","arguments":{{"content":"\\ude00x\\ud83d\\ud83d\\ude00"}}}}{E}',
            [("write", {"content": "\ufffdx\ufffd😀"})],
        ),
        "half a character as a key": (f'{T}{{"name":"f","arguments":{{"\\ud800":1}}}}{E}', [("f", {"\ufffd": 1})]),
        "a zero byte": (f'{T}{{"name":"f","arguments":{{"a":"b\x00\\u0000"}}}}{E}', [("f", {"a": "b\x00\x00"})]),
    },
)
OF_XML = of(
    "qwen_xml",
    {
        "CRLF": (XML.replace("\n", "\r\n"), [W]),
        "CRLF in a value": (
            xml("write", {"content": "a\nb"}).replace("\n", "\r\n"),
            [("write", {"content": "a\r\nb"})],
        ),
        "carriage returns in a value": (xml("write", {"content": "a\rb\r"}), [("write", {"content": "a\rb"})]),
        "quotes around names": (f"{T}<function=\"write\"><parameter='content'>x</parameter></function>{E}", [W]),
        "blanks around names": (f"{T}<function= write ><parameter= content >x</parameter></function>{E}", [W]),
        "blanks between tags": (f"{T} <function=write>\t<parameter=content>x</parameter> \n</function> {E}", [W]),
        "many lines between tags": (WRITE.replace("\n<f", "\n\n\n<f") + f"</parameter>\n\n\n</function>\n\n{E}", [W]),
        "no end of the function": (f"{WRITE}</parameter>\n{E}", [W]),
        "no end of a function without parameters": (f"{T}\n<function=now>\n{E}", [A]),
        "no end of the parameter and the function": (f"{WRITE}{E}", [W]),
        "no end of the parameter, then a call": (f"{WRITE}{E}\n{NOW}", [W, A]),
        "no end of the function, then a call": (f"{WRITE}</parameter>\n{E}\n{NOW}", [W, A]),
        "two opening tags": (f"{T}\n{XML}", [W]),
        "two closing tags": (f"{XML}\n{E}", [W]),
        "names of parameters that are no words": (
            xml("add", {"first": "1", "a-b": "2", "a b": "3", "日本": "x"}),
            [("add", {"first": 1, "a-b": 2, "a b": 3, "日本": "x"})],
        ),
        "entities stay": (xml("write", {"content": "&lt;a&gt; &amp;"}), [("write", {"content": "&lt;a&gt; &amp;"})]),
        "a foreign closing tag": (
            xml("write", {"content": "x\n</content>"}),
            [("write", {"content": "x\n</content>"})],
        ),
        "the end of a block on a line of a value": (
            xml("write", {"content": f"a\n{E}\nb"}),
            [("write", {"content": f"a\n{E}\nb"})],
        ),
        "the end of a block on a line of a value, no end of the function": (
            f"{WRITE}{E}\nb\n</parameter>\n{E}",
            [("write", {"content": f"x\n{E}\nb"})],
        ),
        "an object in place of parameters": (f'{T}\n<function=write>\n{{"content": "x"}}\n</function>\n{E}', [W]),
        "an object, no end of the function": (f'{T}\n<function=write>\n{{"content": "x"}}\n{E}\n{NOW}', [W, A]),
        "an object, no closing tags": (
            f'{T}<function=write>{{"content": "</function>"}}',
            [("write", {"content": "</function>"})],
        ),
        "a call of Hermes in a value": (xml("write", {"content": HERMES}), [("write", {"content": HERMES})]),
    },
) | {
    "qwen_xml, a number with a sign": typed("first", "+5", 5),
    "qwen_xml, a number in quotes": typed("first", '"5"', "5"),
    "qwen_xml, a number with commas": typed("first", "1,000", "1,000"),
    "qwen_xml, blanks around a number": typed("first", " 5 ", 5),
    "qwen_xml, a line in a text of an object": typed("more", '{"a": "x\ny"}', {"a": "x\ny"}),
    "qwen_xml, an object that is cut": typed("more", '{"a": ', '{"a": '),
}
OF_LLAMA = of(
    "llama3_json",
    {
        "a list": (f"[{N}, {X}]", [A, W]),
        "a list on lines": (f"[\n  {N},\n  {X}\n]", [A, W]),
        "no gap": (f"{N}{X}", [A, W]),
        "a comma between": (f"{N}, {X}", [A, W]),
        "null": ('{"name":"now","parameters":null}', [A]),
        "parameters first": ('{"parameters":{"content":"x"},"name":"write"}', [W]),
        "parameters as text": ('{"name":"write","parameters":"{\\"content\\": \\"x\\"}"}', [W]),
        "the function as an object": ('{"type":"function","function":{"name":"now","parameters":{}}}', [A]),
    },
) | of(
    "llama3_python_tag",
    {
        "the tag twice": (f"<|python_tag|><|python_tag|>{N}", [A]),
        "a tag for each call": (f"<|python_tag|>{N}<|python_tag|>{X}", [A, W]),
        "a list": (f"<|python_tag|>[{N}, {X}]", [A, W]),
        "without call": ('<|python_tag|>write(content="x")', [W]),
        "a list of Python": ('<|python_tag|>[now(), write(content="x")]', [A, W]),
        "two lines of Python": ('<|python_tag|>now.call()\nwrite.call(content="x")', [A, W]),
        "a list and a tag": ("<|python_tag|>[now(), <|python_tag|>write(content='x')]", [A, W]),
        "blanks in Python": ('<|python_tag|> write.call( content = "x" )', [W]),
    },
)
OF_FUNCTION = of(
    "llama3_function",
    {
        "two calls": ('<function=now>{}</function><function=write>{"content": "x"}</function>', [A, W]),
        "two lines": ('<function=now>{}</function>\n<function=write>{"content": "x"}</function>\n', [A, W]),
        "no closing tag": ('<function=write>{"content": "x"}', [W]),
        "parameters as tags": ("<function=write><parameter=content>x</parameter></function>", [W]),
    },
)
PYTHON = {
    "three marks": ("""'''a\n"b\'c'''""", "a\n\"b'c"),
    "three other marks": ('"""a "" b"""', 'a "" b'),
    "an empty text between three marks": ('""""""', ""),
    "an empty text": ("''", ""),
    "escapes": (
        r"'\x1b[0m \101\0 \U0001f600 \N{BULLET} \a\v\b\f\n\r\t\\ \' \"'",
        "\x1b[0m A\0 😀 • \a\v\b\f\n\r\t\\ ' \"",
    ),
    "escapes that Python does not have": (r"'\d \xg \U00110000 \N{no such} \8'", r"\d \xg \U00110000 \N{no such} \8"),
    "a line that goes on": ("'a\\\nb'", "ab"),
    "a raw text": (r"r'\d+\'\n'", r"\d+\'\n"),
    "a text with a prefix": ("u'x'", "x"),
    "a tuple": ("('a', ('b',), ())", ["a", ["b"], []]),
    "numbers": ("[1_000, 0x1F, 0b11, .5, -0o17]", [1000, 31, 3, 0.5, -15]),
    "words": ("{'a': None, \"b\": [True, False]}", {"a": None, "b": [True, False]}),
}
OF_PYTHON = of(
    "llama3_python_tag",
    {
        name: (f"<|python_tag|>add.call(loose={written}, first=1)", [("add", {"loose": value, "first": 1})])
        for name, (written, value) in PYTHON.items()
    },
)
NO_CALLS = (
    none(
        "hermes",
        {
            "arguments beside the name": f'{T}{{"name":"write","content":"x"}}{E}',
            "an unknown key in place of arguments": f'{T}{{"name":"write","values":{{"content":"x"}}}}{E}',
            "an empty name": f'{T}{{"name":"","arguments":{{}}}}{E}',
            "a blank name": f'{T}{{"name":"  ","arguments":{{}}}}{E}',
            "null as a name": f'{T}{{"name":null,"arguments":{{}}}}{E}',
            "a number as a name": f'{T}{{"name":5,"arguments":{{}}}}{E}',
            "two arguments": f'{T}{{"name":"write","arguments":{{"content":"a"}},"parameters":{{}}}}{E}',
            "a list of arguments": f'{T}{{"name":"write","arguments":["x"]}}{E}',
            "keys without quotes": f'{T}{{name:"now",arguments:{{}}}}{E}',
            "an empty block": f"a\n{T}\n{E}\nb",
            "an empty object": f"{T}{{}}{E}",
            "a list in a sentence": f"Write [{CALL}] to call.",
        },
    )
    | none(
        "qwen_xml",
        {
            "an empty name": f"{T}<function=></function>{E}",
            "an empty name of a parameter": f"{T}<function=write><parameter=>x</parameter></function>{E}",
            "no end of the parameter, then text": f"{WRITE}{E}\nDone.",
            "no end of the parameter, then more lines": f"{WRITE}{E}\nline 3 of the file\nline 4",
            "no end of the parameter, then half a tag": f"{WRITE}{E}\n</para",
            "nothing closed": WRITE.rstrip(),
        },
    )
    | none(
        "llama3_function",
        {
            "of no tool": "<function=foo>{}</function>",
            "no object": "<function=write>{content: x}</function>",
            "code": "<function=write>(){ return 1 }",
        },
    )
    | none(
        "llama3_json",
        {
            "in a sentence": f"I call {N} now.",
            "a list of others": f'[{{"a": 1}}, {N}]',
            "lists": "[1, 2]\n[a](b)\n[\n[x",
        },
    )
    | none(
        "llama3_python_tag",
        {
            "no keys": '<|python_tag|>write("x")',
            "of no tool": "<|python_tag|>print(now)",
            "code": "<|python_tag|>x = 1",
        },
    )
)
THOUGHTS = {
    "hermes, two thoughts": Slip("hermes", f"<think>a</think><think>b</think>{HERMES}", [W], "", "a\n\nb"),
    "qwen_xml, two thoughts": Slip(
        "qwen_xml", f"<think>\na\n</think>\n\n<think>\nb\n</think>\n{XML}", [W], "", "a\n\nb"
    ),
    "qwen_xml, an empty and another thought": Slip(
        "qwen_xml", f"<think>\n</think>\n<think>b</think>{XML}", [W], "", "b"
    ),
    "qwen_xml, a thought opened twice": Slip("qwen_xml", f"<think>\na</think>{XML}", [W], "", "a", opened=True),
    "qwen_xml, a thought opened twice, unclosed": Slip("qwen_xml", f"<think>a\n{XML}", [W], "", "a", opened=True),
    "hermes, two thoughts, no call": Slip("hermes", "<think>a</think>\n<think>b</think>c", [], "c", "a\n\nb"),
    "hermes, half a tag behind a thought": Slip("hermes", "<think>a</think>\n<thi", [], "<thi", "a"),
}
RARE = OF_HERMES | OF_XML | OF_LLAMA | OF_FUNCTION | OF_PYTHON | NO_CALLS | THOUGHTS
