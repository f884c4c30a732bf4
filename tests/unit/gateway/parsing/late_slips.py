"""More slips in three forms: words around calls, numbers and texts as models write them, ends that are missing."""

import json

from tests.unit.gateway.parsing.rare_slips import CALL, E, N, T, X, none, of
from tests.unit.gateway.parsing.slips import HERMES, NOW, XML, A, Slip, W, hermes, llama, typed, xml

OPEN, NO_FUNCTION = XML.replace("\n</parameter>", ""), XML.replace("\n</function>", "")
PATH = ("write", {"content": "x", "path": None})


def within(form: str, slips: dict[str, tuple[str, list[tuple[str, object]], str]]) -> dict[str, Slip]:
    """Slips with words around their calls."""
    return {f"{form}, {name}": Slip(form, text, calls, content=said) for name, (text, calls, said) in slips.items()}


OF_HERMES = of(
    "hermes",
    {
        "an id and a type beside": (f'{T}{{"id":"c1","type":"function","name":"now","arguments":{{}}}}{E}', [A]),
        "arguments before the name": (f'{T}{{"arguments":{{"content":"x"}},"name":"write"}}{E}', [W]),
        "null as arguments": (f'{T}{{"name":"now","arguments":null}}{E}', [A]),
        "a comma behind the last": (f'{T}{{"name":"write","arguments":{{"content":"x",}},}}{E}', [W]),
        "a line in a text": (
            f'{T}{{"name":"write","arguments":{{"content":"a\nb"}}}}{E}',
            [("write", {"content": "a\nb"})],
        ),
        "a tab in a text": (
            f'{T}{{"name":"write","arguments":{{"content":"a\tb"}}}}{E}',
            [("write", {"content": "a\tb"})],
        ),
        "None": (f'{T}{{"name":"write","arguments":{{"content":"x","path":None}}}}{E}', [PATH]),
        "one mark": (f"{T}{{'name':'write','arguments':{{'content':'x'}}}}{E}", [W]),
        "both tags in a text": (hermes("write", {"content": f"{T}a{E}"}), [("write", {"content": f"{T}a{E}"})]),
        "a call in a text": (hermes("write", {"content": CALL}), [("write", {"content": CALL})]),
        "three calls in a block": (f'{T}\n{CALL}\n{{"name":"now"}}\n{CALL}\n{E}', [W, A, W]),
        "commas between calls": (f"{T}{CALL},{CALL}{E}", [W, W]),
        "no closing tag": (f"{T}\n{CALL}", [W]),
        "half a closing tag": (f"{T}\n{CALL}\n</tool", [W]),
        "an opening tag in place of the closing one": (f"{T}\n{CALL}\n{T}", [W]),
    },
) | within(
    "hermes",
    {
        "words before": (f"I will look.\n{HERMES}", [W], "I will look."),
        "words on the line of the tag": (f"Now: {HERMES}", [W], "Now:"),
        "words between": (f"{HERMES}\nand then\n{HERMES}", [W, W], "\nand then"),
        "words behind": (f"{HERMES}\nDone.", [W], "\nDone."),
        "a sentence with a tag": (f"Use {T} to call.", [], f"Use {T} to call."),
    },
)
OF_XML = of(
    "qwen_xml",
    {
        "no lines": (XML.replace("\n", ""), [W]),
        "no block, two functions": (
            "\n".join(one.removeprefix(f"{T}\n").removesuffix(f"\n{E}") for one in (XML, NOW)), [W, A],
        ),
        "two functions in a block": (f"{T}\n<function=now>\n</function>\n{XML.removeprefix(T)}", [A, W]),
        "a parameter twice": (
            xml("write", {"content": "a"}).replace("</function>", "<parameter=content>\nb\n</parameter>\n</function>"),
            [("write", {"content": "a\n</parameter>\n<parameter=content>\nb"})],
        ),
        "null": (xml("write", {"content": "x", "path": "null"}), [PATH]),
        "JSON in a text": (xml("write", {"content": '{"a": [1]}'}), [("write", {"content": '{"a": [1]}'})]),
        "a comparison": (xml("write", {"content": "a<b>c</b>"}), [("write", {"content": "a<b>c</b>"})]),
        "a function in a text": (
            xml("write", {"content": "<function=f>\n</function>"}),
            [("write", {"content": "<function=f>\n</function>"})],
        ),
        "a parameter in a text": (
            xml("write", {"content": "<parameter=k>v</parameter>"}),
            [("write", {"content": "<parameter=k>v</parameter>"})],
        ),
        "no end of the block": (XML.removesuffix(f"\n{E}"), [W]),
        "half an end of the block": (XML.removesuffix("call>"), [W]),
        "blank lines behind the end of the parameter": (XML.replace("</parameter>", "</parameter>\n\n"), [W]),
        "an end of the block on the line of the function": (XML.replace(f"\n{E}", E), [W]),
        "no end of the parameter": (OPEN, [W]),
        "no end of the parameter, two of the block": (f"{OPEN}\n{E}", [W]),
        "no end of the parameter, then another call": (f"{OPEN}\n{NOW}", [W, A]),
        "no end of the function, then another call": (f"{NO_FUNCTION}\n{NOW}", [W, A]),
    },
) | none(
    "qwen_xml",
    {
        "no end of the parameter, then words": f"{OPEN}\nDone.",
        "no end of the function, then words": f"{NO_FUNCTION}\nDone.",
        "no end of the parameter, words on the line": f"{OPEN} is how a call ends.",
        "no opening tag nor end of the parameter, then words": f"{OPEN.removeprefix(T).lstrip()}\nDone.",
    },
) | within(
    "qwen_xml",
    {
        "words before": (f"I will look.\n\n{XML}", [W], "I will look."),
        "words behind": (f"{XML}\nDone.", [W], "\nDone."),
        "words between": (f"{XML}\nand\n{NOW}", [W, A], "\nand"),
        "a sentence with a tag": ("Use <function=write> here.", [], "Use <function=write> here."),
    },
) | {
    f"qwen_xml, {name}": typed(key, text, value)
    for name, key, text, value in (
        ("an integer as 5.0", "first", "5.0", 5),
        ("a number with an exponent", "second", "1e3", 1000.0),
        ("a word for true", "exact", "True", True),
        ("a word for false", "exact", "false", False),
        ("a list of Python", "tags", "['a', \"b\"]", ["a", "b"]),
        ("an empty list", "tags", "[]", []),
        ("an empty object", "more", "{}", {}),
        ("an object of Python", "more", "{'a': None, 'b': (1,)}", {"a": None, "b": [1]}),
        ("one of several", "unit", "m", "m"),
        ("none of several", "unit", "None", None),
        ("a constant", "when", "now", "now"),
        ("a constant's other", "when", "5", 5),
    )
}  # fmt: skip
OF_LLAMA = of(
    "llama3_json",
    {
        "arguments": ('{"name":"write","arguments":{"content":"x"}}', [W]),
        "a type first": ('{"type":"function","name":"write","parameters":{"content":"x"}}', [W]),
        "a semicolon between": (f"{N}; {X}", [A, W]),
        "lines between": (f"{N}\n\n{X}\n", [A, W]),
        "braces in a text": (llama("write", {"content": "}{"}), [("write", {"content": "}{"})]),
        "blanks inside": ('{ "name" : "now" , "parameters" : { } }', [A]),
        "one mark": ("{'name': 'now', 'parameters': {}}", [A]),
        "a number as text": (llama("add", {"first": "5"}), [("add", {"first": "5"})]),
    },
) | none(
    "llama3_json",
    {
        "a name alone": '{"name": "now"',
        "an answer in JSON": json.dumps({"city": "Rome", "parameters": {}}),
        "a call that is cut": X[:-3],
    },
)
LATE = OF_HERMES | OF_XML | OF_LLAMA
