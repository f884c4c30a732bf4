"""Constraints are compiled, refused with a pointer, and never take much time or memory."""

import json
import random
import re
import struct
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from services.common.request.constraint import Constraint, Form
from services.common.request.errors import PacelineError
from services.common.request.grammar import Grammars, choice_constraint, inline
from services.common.request.limits import LIMITS
from tests.support.cases import each
from tests.support.schemas import schema

TOKENIZER = Path(__file__).parents[4] / "models" / "embedded" / "target" / "tokenizer.json"


@cache
def grammars() -> Grammars:
    return Grammars(TOKENIZER.read_text("utf-8"), 1024, (0,))


def fault(text: object, form: Form = Form.JSON) -> tuple[str, str]:
    """Field and message of a refusal."""
    with pytest.raises(PacelineError) as error:
        grammars().rule(Constraint(form, text if isinstance(text, str) else json.dumps(text), "it"))
    return error.value.field, error.value.message


def said(text: str, source: str) -> bool:
    """Whether a grammar takes a whole text."""
    tokens = grammars()._tokenizer.tokenize_str(text)
    matcher = grammars().grammar(grammars().rule(Constraint(Form.GRAMMAR, source, "it"))).matcher()
    return bool(matcher.consume_tokens(tokens) and matcher.is_accepting())


@each("seed", range(40))
def test_every_kind_of_schema_compiles(seed: int) -> None:
    rule = grammars().rule(Constraint(Form.JSON, json.dumps(schema(seed)), "it"))
    assert grammars().grammar(rule).matcher().is_error() is False


def spoilt(source: random.Random) -> tuple[dict[str, Any], str]:
    """A schema with a fault at a random place, and the pointer to it."""
    part: Any = {"type": "string", "contentEncoding": "base64", "not": {}}
    pointer = ""
    for _ in range(source.randint(0, 6)):
        kind = source.randrange(4)
        if kind == 0:
            name = source.choice(["a", "b/c", "~", "é"])
            part = {"type": "object", "properties": {"x": {"type": "integer"}, name: part}, "required": [name]}
            pointer = f"/properties/{name.replace('~', '~0').replace('/', '~1')}{pointer}"
        elif kind == 1:
            part, pointer = {"type": "array", "items": part}, f"/items{pointer}"
        elif kind == 2:
            part, pointer = {"anyOf": [{"type": "null"}, part]}, f"/anyOf/1{pointer}"
        else:
            part, pointer = {"$ref": "#/$defs/d", "$defs": {"d": part}}, f"/$defs/d{pointer}"
            break
    return part, pointer


@each("seed", range(25))
def test_a_fault_is_pointed_at(seed: int) -> None:
    broken, pointer = spoilt(random.Random(seed))
    field, message = fault(broken)
    assert field == f"it#{pointer}"
    assert "not" in message


@each(
    ("text", "field"),
    [
        ("{", "it"),
        ("[1]", "it"),
        ('{"a": NaN}', "it"),
        ("[" * 100_000, "it"),
        ({"enum": ["x" * LIMITS.constraint_bytes]}, "it"),
        ({"properties": {"a": {"multipleOf": 999_983}}}, "it#/properties/a"),
        ({"properties": {"a": {"multipleOf": 0.123456}}}, "it#/properties/a"),
        ({"properties": {"a": {"type": "integer", "maximum": 10**4000}}}, "it#/properties/a"),
        ({"properties": {"a": {"type": "number", "multipleOf": -(10**400)}}}, "it#/properties/a"),
        ({"properties": {"a": {"enum": [10**400]}}}, "it#/properties/a"),
        ({"properties": {f"p{n}": {} for n in range(1001)}}, "it#/properties"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}, "it#/properties/a"),
    ],
)
def test_what_is_too_much_or_no_schema_is_refused(text: object, field: str) -> None:
    assert fault(text)[0] == field


def test_a_schema_that_is_nested_too_deeply_is_refused_where_it_is() -> None:
    part: Any = {"type": "integer"}
    for _ in range(70):
        part = {"items": part}
    assert fault(part)[0] == "it#" + "/items" * 64


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (Form.REGEX, "("),
        (Form.REGEX, "(?<=a)b"),
        (Form.GRAMMAR, "start: missing"),
        (Form.GRAMMAR, "root ::= ("),
        (Form.GRAMMAR, ""),
    ],
)
def test_broken_grammars_are_refused_by_name(form: Form, text: str) -> None:
    assert fault(text, form)[0] == "it"


def test_choices_are_taken_as_they_are() -> None:
    texts = ['with "quotes"', "back\\slash", "new\nline", "é €", "a", "ab"]
    rule = grammars().rule(choice_constraint(texts, "it"))
    for text in texts:
        matcher = grammars().grammar(rule).matcher()
        assert matcher.consume_tokens(grammars()._tokenizer.tokenize_str(text))
        assert matcher.is_accepting()
    with pytest.raises(PacelineError):
        choice_constraint(["a"] * (LIMITS.constraint_choices + 1), "it")


def test_both_syntaxes_of_grammars() -> None:
    for source in ('root ::= "a" [0-9]+ tail\ntail ::= "!" | "?"', 'start: "a" /[0-9]+/ ("!" | "?")'):
        assert said("a123?", source)
        assert not said("a?", source)


BOMBS = """
    import json, resource
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    from services.common.request.constraint import Constraint, Form
    from services.common.request.errors import PacelineError
    from services.common.request.grammar import Grammars

    def nested(levels, wrap, part={"type": "integer"}):
        for level in range(levels):
            part = wrap(part, level)
        return part

    either = lambda at: {"anyOf": [{"properties": {f"k{at}": {"type": "string"}}}, {"properties": {f"j{at}": {}}}]}
    schemas = [
        nested(11, lambda part, _: {"anyOf": [part, {"type": "array", "items": part}]}),
        nested(30, lambda part, at: {"allOf": [part, either(at)]}),
        nested(20, lambda part, _: {"type": "array", "items": part, "minItems": 50, "maxItems": 50}),
        {"enum": [f"value number {n * 7919 % 10007}" for n in range(4000)]},
        {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(1000)}},
        {"type": "array", "items": {"type": "integer"}, "minItems": 10**9},
        {"type": "string", "minLength": 10**7, "maxLength": 10**8},
        {"type": "integer", "minimum": -(10**30), "maximum": 10**30},
        {"type": "string", "pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [*[{"$ref": "#/$defs/a"}] * 2, {"type": "null"}]}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/a"}] * 3}}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "object"}]}}},
    ]
    regexes = [
        "(a{1,1000}){1,1000}", "(a|b)*a(a|b){200}", "(x+x+)+y", "(.*a){30}", ".{0,100000}",
        "((a{0,100}){0,100}){0,100}", "|".join(f"(.*a{n})" for n in range(300)), "(?:(?:(?:.*.*)*)*)*",
    ]
    forms = [(Form.JSON, json.dumps(each)) for each in schemas]
    forms += [(Form.REGEX, each) for each in regexes]
    grammars = Grammars(open(TOKENIZER).read(), 1024, (0,))
    refused = 0
    for form, text in forms:
        try:
            matcher = grammars.grammar(grammars.rule(Constraint(form, text, "it"))).matcher()
        except PacelineError:
            refused += 1
            continue
        for _ in range(30):
            bits = int.from_bytes(matcher.compute_bitmask(), "little") & ~1
            if matcher.is_error() or not bits:
                break
            matcher.consume_token(bits.bit_length() - 1)
    print(refused, len(forms))
"""


def test_bombs_take_bounded_time_and_memory() -> None:
    """In a process whose CPU seconds and memory the kernel bounds: compiled, or refused, and 30 tokens masked."""
    program = textwrap.dedent(BOMBS).replace("TOKENIZER", repr(str(TOKENIZER)))
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=TOKENIZER.parents[3],
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    refused, tried = map(int, done.stdout.split())
    assert 0 < refused < tried


NAMES = ("id", "é", "a b", "a/b", 'q"', "back\\slash", "line\nend", "😀", "~")


@each("name", NAMES)
@each("kind", ["properties", "patternProperties", "nested", "inline"])
def test_a_stated_name_keeps_its_meaning_however_it_is_written(name: str, kind: str) -> None:
    """By escapes it would be another name, whose value may be anything."""
    stated = "^" + re.escape(name) + "$" if kind == "patternProperties" else name
    made: dict[str, Any] = {
        "type": "object",
        ("properties" if kind != "patternProperties" else kind): {stated: {"const": 1}},
    }
    schema = {"type": "object", "properties": {"in": made}, "required": ["in"]} if kind == "nested" else made
    source = f"start: {inline(schema)}\n" if kind == "inline" else ""
    escaped = "".join(
        f"\\u{unit:04x}" for unit in struct.unpack(f"<{len(name.encode('utf-16le')) // 2}H", name.encode("utf-16le"))
    )
    for written in (escaped, escaped.upper().replace("\\U", "\\u"), json.dumps(name, ensure_ascii=False)[1:-1]):
        for value in (1, 2):
            text = f'{{"{written}": {value}}}'
            text = f'{{"in": {text}}}' if kind == "nested" else text
            took = said(text, source) if source else matches(text, schema)
            assert not took or json.loads(text) in ({name: 1}, {"in": {name: 1}})
            assert took or written is escaped or value == 2 or "\\u" in written


def test_other_names_and_control_characters_can_be_written() -> None:
    opened, closed = ({"type": "object", "properties": {"a": {"type": "string"}}} | more for more in ({}, CLOSED))
    assert matches('{"b": 2}', opened) and matches('{"a": "\\n"}', opened)
    assert matches('{"a": "\\u001b"}', closed) and not matches('{"b": 2}', closed)


CLOSED = {"additionalProperties": False}


def matches(text: str, schema: dict[str, Any]) -> bool:
    """Whether the grammar of a schema takes a whole text."""
    matcher = grammars().grammar(grammars().rule(Constraint(Form.JSON, json.dumps(schema), "it"))).matcher()
    return bool(matcher.consume_tokens(grammars()._tokenizer.tokenize_str(text)) and matcher.is_accepting())
