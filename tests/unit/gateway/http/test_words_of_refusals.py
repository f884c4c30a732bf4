"""Every refusal of a body names its field, and says what is wrong in words of JSON, not of Python."""

import json
import re
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import pytest

from services.common.request.errors import PacelineError
from services.gateway.http.endpoints.openapi import BODIES
from services.gateway.http.reading.body import parsed
from services.gateway.http.schema.base import Body

SAID: list[dict[str, Any]] = [{"role": "user", "content": "x"}]
BASES: dict[str, dict[str, Any]] = {
    "ChatBody": {"model": "m", "messages": SAID},
    "CompletionBody": {"model": "m", "prompt": "x"},
    "MessagesBody": {"model": "m", "max_tokens": 3, "messages": SAID},
    "CountBody": {"model": "m", "messages": SAID},
    "ResponsesBody": {"model": "m", "input": "x"},
    "TokenizeBody": {"model": "m", "prompt": "x"},
    "DetokenizeBody": {"model": "m", "tokens": [1]},
}
VALUES: tuple[Any, ...] = (
    None, True, False, 3, -1, 0.5, 1e300, "x", "", [], {}, [1], ["x"], [None], [[]], [{}], {"a": 1},
    {"type": 1}, {"type": "x"}, {"type": None}, {"type": []}, {"type": {}}, {"type": {"type": None}},
    [{"type": 1}], [{"type": "x"}], [{"type": None}], [{"type": []}], [{"type": {}}],
)  # fmt: skip
DEEP = 3
PYTHON = re.compile(
    r"\b(False|True|None|NoneType|dict|dictionary|tuple|bytearray|Literal|class|instance|tagged|union|Body)\b|function-"
)
QUOTED = re.compile(r"'[^'{\[]*'")
NO_REMEDY = re.compile(r"Input should be (null|[0-9]+|'')$")


def inner(kind: Any, several: bool = False) -> Iterator[tuple[type[Body], bool]]:
    """The bodies that a type holds, and whether in a list."""
    if isinstance(kind, type) and issubclass(kind, Body):
        yield kind, several
    for argument in get_args(kind):
        yield from inner(argument, several or get_origin(kind) is list)


def least(body: type[Body]) -> dict[str, Any]:
    """What a body needs, most of it right."""
    found: dict[str, Any] = {}
    for name, field in body.model_fields.items():
        values = get_args(field.annotation)
        if field.is_required():
            found[field.alias or name] = values[0] if values and isinstance(values[0], str) else "x"
    return found


def wrong(body: type[Body], deep: int = 0) -> Iterator[dict[str, Any]]:
    """One field with one value, and so on in what is inside."""
    for attribute, field in body.model_fields.items():
        name = field.alias or attribute
        yield from ({name: value} for value in VALUES)
        for one, several in inner(field.annotation) if deep < DEEP else ():
            for value in wrong(one, deep + 1):
                whole = least(one) | value
                yield {name: [whole] if several else whole}


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_a_refusal_names_its_field_in_words_of_json(body: type[Body], report_counts: Any) -> None:
    refused = 0
    for value in wrong(body):
        try:
            parsed(body, bytearray(json.dumps(BASES[body.__name__] | value).encode()))
        except PacelineError as error:
            refused += 1
            told = str(error)
            assert error.field, told
            assert not PYTHON.search(QUOTED.sub("", told)), told
            assert not NO_REMEDY.search(told), told
    assert refused
    report_counts("bodies_refused", refused)
