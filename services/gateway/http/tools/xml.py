"""Calls as tags: <function=name><parameter=key>value</parameter></function>, which Qwen3-Coder and Qwen3.5 write."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from services.gateway.http.output import Call

FUNCTION, END_FUNCTION = "<function=", "</function>"
PARAMETER, END_PARAMETER = "<parameter=", "</parameter>"
TEXT = frozenset({"string", "str", "text"})


class _NoCallError(ValueError):
    """What stands between the tags is no call."""


def xml_call(text: str, schemas: Mapping[str, Mapping[str, Any]]) -> Call | None:
    """The call that stands between two tags; None when it is none. The work is linear in the text.

    Args:
        text: what stands there.
        schemas: JSON Schemas of the arguments by function: values of other types than text are JSON.
    """
    text = text.strip()
    if not text.startswith(FUNCTION):
        return None
    try:
        name, start = _named(text, len(FUNCTION))
        properties = schemas.get(name, {}).get("properties", {})
        known = properties if isinstance(properties, dict) else {}
        found = _parameters(text[start:].removesuffix(END_FUNCTION))
        arguments = {key: _value(value, known.get(key)) for key, value in found}
    except _NoCallError:
        return None
    return Call(name, json.dumps(arguments, ensure_ascii=False))


def _parameters(text: str) -> Iterator[tuple[str, str]]:
    """Names and values; a value ends at its tag, at the next parameter or with the text."""
    position = 0
    while (start := text.find(PARAMETER, position)) >= 0:
        _check_blank(text[position:start])
        name, begin = _named(text, start + len(PARAMETER))
        closed = text.find(END_PARAMETER, begin)
        end = closed if closed >= 0 else len(text)
        following = text.find(PARAMETER, begin, end)
        if following >= 0:
            closed, end = -1, following
        yield name, text[begin:end]
        position = end + len(END_PARAMETER) if closed >= 0 else end
    _check_blank(text[position:])


def _named(text: str, start: int) -> tuple[str, int]:
    """The name that begins at `start`, and where its tag ends."""
    end = text.find(">", start)
    name = text[start:end].strip()
    if end < 0 or not name or "\n" in name:
        raise _NoCallError
    return name, end + 1


def _check_blank(text: str) -> None:
    if text and not text.isspace():
        raise _NoCallError


def _value(text: str, schema: object) -> Any:
    """The value in the type that its schema states; text where it is none of it."""
    text = text.removeprefix("\n").removesuffix("\n")
    kind = schema.get("type") if isinstance(schema, dict) else None
    kinds = set(kind) if isinstance(kind, list) else {kind}
    if kinds & TEXT and not (text == "null" and "null" in kinds):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
