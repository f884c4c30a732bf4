"""Texts of tags, whole and half ones: their parts do not depend on where they are cut, in any form."""

import random
from collections.abc import Iterable
from itertools import product

from services.gateway.parsing.calls import CallSplitter
from services.gateway.parsing.form import chosen, forms
from services.gateway.parsing.output import CallEnd, CallPiece, Content, Ending, Part, Reasoning
from services.gateway.parsing.reasoning import ReasoningSplitter
from services.gateway.parsing.xml_tags import MOST_BLANK
from tests.support.cases import each
from tests.unit.gateway.parsing.slips import TOOLS

SEED = 162
FEW, MANY = 80, 20_000
"""Texts of a form."""

TEXTS = (Content, Reasoning, CallPiece)

XML = (
    "<function=write>", "<function=now>", "</function>", "</function >", "<parameter=content>", "<parameter=path>",
    '<parameter name="content">', "<parameter=content/>", "</parameter>", "< / parameter=x >", "</parameter>\n",
    '{"content": "', '"}', "{", "}", '"',
)  # fmt: skip
JSON = (
    '{"name": "write", "parameters": {"content": "', '"name"', '"write"', '"arguments"', '"}}', '"', "{", "}", "[", "]",
    ":", ",", "\\", "\\u", "d83d", "```json\n", "```",
)  # fmt: skip
PYTHON = (
    "<|python_tag|>", "write.call(", "now()", "content=", '"', "'", '"""', "r'", "(", ")", "\\", "\\x4", "\\N{", "1_0",
    "0x", "None", "[", "]", ",", '{"name": "write", "parameters": {"content": "', '"}}',
)  # fmt: skip
BLOCK = ("<tool_call>", "</tool_call>", "</ tool_call >")
TYPED = ("<function=add>", "<parameter=first>", "<parameter=tags>", "<parameter=unit>", "null")
PIECES = {
    "qwen_xml": (*BLOCK, *XML, *TYPED),
    "llama3_function": XML,
    "hermes": (*BLOCK, *JSON),
    "llama3_json": JSON,
    "llama3_python_tag": PYTHON,
}
THOUGHT = ("<think>", "</think>")
BLANKS = (" ", "\n", "\n", "\r\n", "\r", "\t", "x", "x", ">", "<", "</", "/")
RUNS, SIZES = (" ", "\n", "x", "=", "\r\n"), (7, 8, 9, 255, 256, 257, 300)
"""Around the bounds of blanks in a tag, of blanks between tags and of a whole tag."""

BEGINNINGS = {
    "qwen_xml": "<tool_call>\n<function=write>\n<parameter=content>\n",
    "llama3_function": "<function=write><parameter=content>",
    "hermes": '<tool_call>\n{"name": "write", "arguments": {"content": "',
    "llama3_json": '{"name": "write", "parameters": {"content": "',
    "llama3_python_tag": '<|python_tag|>write.call(content="',
}
ENDS = {
    "qwen_xml": "\n</parameter>\n</function>\n</tool_call>",
    "llama3_function": "</parameter></function>",
    "hermes": '"}}\n</tool_call>',
    "llama3_json": '"}}',
    "llama3_python_tag": '")',
}
BEFORE_HALF = ("", "a", "a</x", "a<function=now>", "a</parameter>\n</function>\n", "a<function={")
HALF_TAGS = (
    "</param\n", "\n</param\r\neter></param\n", "</param ", "<par\r\n", "</para>", "</function{", "<fun ction=",
    "<         /parameter", "<functionname=", "</tool_ca\r", '</parameter{"',
)  # fmt: skip


def drawn(draw: random.Random, form: str) -> str:
    """A call that begins right in most texts and ends right in some, with pieces of tags in it."""
    text = "".join(drawn_piece(draw, form) for _ in range(draw.randint(1, 14)))
    return draw.choice((BEGINNINGS[form], BEGINNINGS[form], "")) + text + draw.choice((ENDS[form], "", ""))


def drawn_piece(draw: random.Random, form: str) -> str:
    if draw.random() < 0.03:
        return draw.choice(RUNS) * draw.choice(SIZES)
    tag, how = draw.choice(PIECES[form] if draw.random() < 0.93 else THOUGHT), draw.random()
    if how < 0.35:
        return tag
    if how < 0.6:
        return tag[: draw.randint(1, len(tag))]
    return tag[draw.randint(0, len(tag) - 1) :] if how < 0.7 else draw.choice(BLANKS)


def cut(draw: random.Random, text: str) -> list[str]:
    places = sorted(draw.randint(0, len(text)) for _ in range(draw.randint(1, 6)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


def read(form: str, pieces: Iterable[str], ending: Ending, opened: bool = False) -> list[Part]:
    """All parts, those of one kind that follow each other joined; of a call that was cut too, for a client sees it."""

    def calls() -> CallSplitter:
        return CallSplitter(chosen("", form), TOOLS)

    splitter = ReasoningSplitter(calls(), opened, calls)
    joined: list[Part] = []
    for part in [*(part for piece in pieces for part in splitter.push(piece)), *splitter.finish(ending)]:
        last = joined[-1] if joined else None
        if isinstance(part, TEXTS) and isinstance(last, TEXTS) and type(part) is type(last):
            joined[-1] = type(part)(last.text + part.text)
        else:
            joined.append(part)
    return joined


@each("form", forms())
def test_the_parts_of_a_text_do_not_depend_on_its_cuts(form: str, full: bool) -> None:
    draw, called = random.Random(f"{SEED} {form}"), 0
    for _ in range(MANY if full else FEW):
        text, ending, opened = drawn(draw, form), draw.choice([*Ending]), draw.random() < 0.1
        whole = read(form, [text], ending, opened)
        called += any(isinstance(part, CallEnd) for part in whole)
        for pieces in ([*text], cut(draw, text), cut(draw, text)):
            assert read(form, pieces, ending, opened) == whole, f"seed {SEED}, {ending}, opened {opened}: {pieces}"
    assert called >= FEW // 40, "some of them hold calls"


@each("form", ["qwen_xml", "llama3_function"])
def test_half_a_tag_at_the_end_reads_alike_letter_by_letter(form: str) -> None:
    for before, half in product(BEFORE_HALF, HALF_TAGS):
        text = BEGINNINGS[form] + before + half
        assert read(form, [*text], Ending.ITSELF) == read(form, [text], Ending.ITSELF), repr(text)


def test_what_a_broken_value_said_is_told_however_it_is_cut() -> None:
    text = '<|python_tag|>write.call(content="a", path=["b"}'
    assert read("llama3_python_tag", [*text], Ending.CUT) == read("llama3_python_tag", [text], Ending.CUT)


@each("blanks", [254, 255, 256, 257])
def test_blanks_behind_a_closing_tag_count_alike_letter_by_letter(blanks: int) -> None:
    text = BEGINNINGS["llama3_function"] + "a</parameter>" + " " * blanks + "</function>"
    whole = read("llama3_function", [text], Ending.ITSELF)
    assert read("llama3_function", [*text], Ending.ITSELF) == whole
    assert isinstance(whole[-1], CallEnd) == (blanks < MOST_BLANK)


@each("form", ["hermes", "llama3_json"])
def test_a_blank_ends_a_literal_letter_by_letter_too(form: str) -> None:
    for value in ("1 2", "1 2}", "true\n}", "nul l}", "1 ,"):
        text = BEGINNINGS[form] + 'a", "path": ' + value + ENDS[form].removeprefix('"')
        assert read(form, [*text], Ending.ITSELF) == read(form, [text], Ending.ITSELF), value
