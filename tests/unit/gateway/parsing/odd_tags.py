"""Tags that models miswrite: names repeated in closing tags, attributes, blanks; and odd ways around Hermes' JSON."""

import json

from tests.unit.gateway.parsing.slips import A, Slip, W, xml

T, E = "<tool_call>", "</tool_call>"
WHOLE = f"{T}\n<function=write>\n<parameter=content>\nx\n</parameter>\n"
CALL = '{"name":"write","arguments":{"content":"x"}}'
CLOSINGS = ("{0}={1}", "{0}=other", "{0} ", " {0}", "{0}\n", '{0}="{1}"', '{0} name="{1}"')
"""What stands behind the slash of a closing tag."""
OPENINGS = (
    '{0} name="{1}"',
    "{0} name='{1}'",
    "{0} name={1}",
    '{0}  name = "{1}" ',
    "{0} = {1} ",
    '{0} name="{1}" x="y"',
)
VALUES = (
    "a </parameter=x> b", "a </parameter > b", 'a </parameter name="k"> b', 'use <function name="f"> b',
    'a\n<parameter name="k"> b', "a </function=f> b", "Array<function ()> x < / b > c", '<parameter name=">">',
    "if (a <function (x) { return x>1 })", "</ b> < / c> </", "</parameter name", "a\n</parameter\nb", "<function",
)  # fmt: skip
"""Values that hold such tags, or their beginnings."""


def closing(word: str, name: str, tail: str) -> str:
    return f"</{tail.format(word, name)}>"


def opening(word: str, name: str, form: str) -> str:
    return f"<{form.format(word, name)}>"


def of_closings() -> dict[str, Slip]:
    found = {}
    for tail in CLOSINGS:
        parameter, function = closing("parameter", "content", tail), closing("function", "write", tail)
        begin = f"{T}\n<function=write>\n<parameter=content>\nx\n"
        found[f"a parameter's, {tail!r}"] = Slip("qwen_xml", f"{begin}{parameter}\n</function>\n{E}", [W])
        found[f"a function's, {tail!r}"] = Slip("qwen_xml", f"{begin}</parameter>\n{function}\n{E}", [W])
        text = f"<function=write><parameter=content>x{parameter}{function}"
        found[f"both, without a block, {tail!r}"] = Slip("qwen_xml", text, [W])
        found[f"an object's, {tail!r}"] = Slip("llama3_function", f'<function=write>{{"content": "x"}}{function}', [W])
    for block in ("</tool_call >", "</ tool_call>", "< /tool_call\n>"):
        text = f"{T}\n{CALL}\n{block}\n{T}\n{CALL}\n{E}"
        found[f"a block's, {block!r}"] = Slip("hermes", text, [W, W])
        text = xml("write", {"content": "x"}).replace(E, block) + "\n" + xml("now", {})
        found[f"a block's of tags, {block!r}"] = Slip("qwen_xml", text, [W, A])
    return found


def of_openings() -> dict[str, Slip]:
    found = {}
    for form in OPENINGS:
        function, parameter = opening("function", "write", form), opening("parameter", "content", form)
        path = opening("parameter", "path", form)
        text = f"{T}\n{function}\n{path}\n/a\n</parameter>\n{parameter}\nx\n</parameter>\n</function>\n{E}"
        found[f"all, {form!r}"] = Slip("qwen_xml", text, [("write", {"path": "/a", "content": "x"})])
        text = f"ok\n{function}\n{parameter}x</parameter>\n</function>"
        found[f"without a block, {form!r}"] = Slip("qwen_xml", text, [W], content="ok")
        found[f"an object's, {form!r}"] = Slip("llama3_function", f'{function}{{"content": "x"}}</function>', [W])
    return found


def of_json() -> dict[str, Slip]:
    """JSON in fences, in two braces, and with other words for its keys."""
    named = {key: f'{T}{{"{key}":"write","arguments":{{"content":"x"}}}}{E}' for key in ("tool", "tool_name")}
    texts = {
        "a fence": f"{T}\n```json\n{CALL}\n```\n{E}",
        "a fence without a word": f"{T}\n```\n{CALL}\n```\n{E}",
        "a fence on one line": f"{T}```json {CALL}```{E}",
        "two braces": f"{T}\n{{{CALL}}}\n{E}",
        **named,
        "a name behind others": CALL.replace("write", "functions.write").join((T, E)),
    }
    found = {name: Slip("hermes", text, [W]) for name, text in texts.items()}
    for number, value in (("0x1F", 31), ("-0XfF", -255), ("undefined", None), ("0x" + "f" * 256, 16**256 - 1)):
        text = f'{T}{{"name":"f","arguments":{{"a": {number}, "b": [{number}]}}}}{E}'
        found[f"a number, {number[:9]}"] = Slip("hermes", text, [("f", {"a": value, "b": [value]})])
    for word in ("0x1F", "undefined"):
        found[f"a parameter, {word}"] = Slip("qwen_xml", xml("add", {"loose": word}), [("add", {"loose": word})])
    found["a template's braces"] = Slip("hermes", "{{ name }}\n{{x", [], content="{{ name }}\n{{x")
    found["a name behind others, tags"] = Slip("qwen_xml", xml("functions.write", {"content": "x"}), [W])
    found["a name behind others, Python"] = Slip("llama3_python_tag", "<|python_tag|>tools.write(content='x')", [W])
    other = json.dumps({"name": "a.foo", "parameters": {}})
    found["a name behind others, not offered"] = Slip("llama3_json", other, [], content=other)
    return found


def of_whole_tags() -> dict[str, Slip]:
    """Tags that close themselves."""
    found = {}
    for tag in ("=now/", "=now /", ' name="now"/', ' name="now" /', "='now'/", " name=now /"):
        function = f"<function{tag}>"
        found[f"a function, {tag!r}"] = Slip("qwen_xml", f"{T}\n{function}\n{E}", [A])
        found[f"two functions, {tag!r}"] = Slip("qwen_xml", f"{T}{function}{E}\n{xml('now', {})}", [A, A])
        found[f"without a block, {tag!r}"] = Slip("qwen_xml", f"Now:\n{function}\n", [A], content="Now:")
        value = f"a {function} b"
        found[f"a value with {tag!r}"] = Slip(
            "qwen_xml", xml("write", {"content": value}), [("write", {"content": value})]
        )
    for tag in ("=path/", ' name="path" /'):
        text = f"{WHOLE}<parameter{tag}>\n</function>\n{E}"
        found[f"a parameter, {tag!r}"] = Slip("qwen_xml", text, [("write", {"content": "x", "path": ""})])
    return found


def of_blanks() -> dict[str, Slip]:
    """Characters that nobody sees, before a call."""
    found = {}
    for blank in ("\ufeff", "\u200b", "\u2060\n"):
        found[f"{blank!r} before JSON"] = Slip("hermes", f"{T}{blank}{CALL}{E}", [W])
        found[f"{blank!r} before a tag"] = Slip("qwen_xml", f"{T}{blank}{xml('now', {}).removeprefix(T)}", [A])
    return found


def of_values() -> dict[str, Slip]:
    return {
        f"a value, {value!r}": Slip("qwen_xml", xml("write", {"content": value}), [("write", {"content": value})])
        for value in VALUES
    }


def of_lines() -> dict[str, Slip]:
    """JSON without tags, on the line where its fence begins; behind words of that line it is no call."""
    found = {}
    for form, key in (("hermes", "arguments"), ("llama3_json", "parameters")):
        call = CALL.replace("arguments", key)
        for fence, before in (
            ("```", "```json"),
            ("```", "```"),
            ("`", "`"),
            ("``", "``"),
            ("\n```", "Now.\n```tool_call"),
        ):
            text = f"{before} {call}{fence}"
            found[f"{form} on the line of {before!r}"] = Slip(form, text, [W], content=before)
        for before in ("Write ```json", "Write `", "```a b", "````", f"```{'x' * 17}", "```json\nx"):
            text = f"{before} {call}```"
            found[f"{form} on the line of {before!r}"] = Slip(form, text, [], content=text)
    return found


ODD_TAGS = {
    f"odd tags, {name}": slip
    for name, slip in (
        of_closings() | of_openings() | of_whole_tags() | of_blanks() | of_json() | of_lines() | of_values()
    ).items()
}
