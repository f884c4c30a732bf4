"""JSON bodies as large as the wire allows, made of a schema: every list, map, text and unread field is filled.

A field that is added to a schema is attacked from that day on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from pydantic import BaseModel

HOLE = "@@hole@@"
WRONG = (b"{}", b"[]", b"0", b"true", b'""', b"[[]]", b'{"":0}', b"1e9", b"null")
"""Small values, most of which belong nowhere; a client without manners fills lists with them."""

MANY: tuple[tuple[str, bytes, int], ...] = (
    ("wide text", '"{}\U0001f600"'.format("a" * 58).encode(), 1 << 16),
    ("long number", b"1" * 13, 1 << 18),
    ("number", b"1.5e300", 1 << 18),
)
"""Entries as large as so many of them may be: one wide letter makes a text four times as large as its bytes."""

DEEP = 100
"""Levels, of which a parser takes 200."""


class GiantBodies:
    """The bodies of one model, each of at most `size` bytes, with a name that tells which field is filled by what.

    Of a sample every `step`-th one is made.
    """

    def __init__(self, kind: type[BaseModel], size: int, step: int = 1) -> None:
        self._step = step
        self._root = kind.model_json_schema()
        self._definitions = self._root.get("$defs", {})
        self._size = size

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        sites = self._sites(self._root, "", HOLE)
        cases = ((path, body, filling) for path, body, schema in sites for filling in self._fillings(schema))
        for path, body, (name, begin, pieces, end) in islice(cases, 0, None, self._step):
            before, after = json.dumps(body).encode().split(f'"{HOLE}"'.encode())
            room = self._size - len(before) - len(after) - len(begin) - len(end) - 1
            yield f"{path or 'body'} {name}", b"".join((before, begin, _joined(pieces, room), end, after))

    def _sites(self, schema: dict[str, Any], path: str, body: Any) -> Iterator[tuple[str, Any, dict[str, Any]]]:
        """Each place of a value: its name, the smallest body with a hole there, and what may stand there."""
        for one in self._branches(schema):
            yield path, body, one
            for name, inner in one.get("properties", {}).items():
                others = {key: self._smallest(one["properties"][key]) for key in one.get("required", ())}
                yield from self._sites(inner, f"{path}.{name}".strip("."), _put(body, {**others, name: HOLE}))
            for inner in (one["items"],) if isinstance(one.get("items"), dict) else ():
                if inner:
                    yield from self._sites(inner, f"{path}[]", _put(body, [HOLE]))

    def _fillings(self, schema: dict[str, Any]) -> Iterator[tuple[str, bytes, tuple[bytes, ...], bytes]]:
        """What a hole is filled with: a name, how it begins, what is repeated (in turn) and how it ends."""
        kind = schema.get("type")
        if kind == "array" or not kind:
            own = [json.dumps(self._smallest(schema["items"])).encode()] if schema.get("items") else []
            for item in (*own, *WRONG):
                yield f"[{item.decode()}, ...]", b"[", (item,), b"]"
            for name, item, most in MANY:
                yield f"[{name}, ...]", b"[", (item,) * most, b"]"
        if kind == "object" or not kind:
            for value in WRONG[:4]:
                yield f"{{name: {value.decode()}, ...}}", b"{", (b'"%x":' + value,), b"}"
                yield f"{{1: {value.decode()}, ...}}", b"{", (b'"1":' + value,), b"}"
        if kind == "string" or not kind:
            for text in (b"a", b"\\u00e9", b"\\ud83d\\ude00", rb"\"", rb"\\", "é".encode(), b"\\ud800"):
                yield f'"{text.decode()}..."', b'"', (b"", text), b'"'
            for item in WRONG:
                inner = item.replace(b'"', rb"\"")
                yield f'"{{a: [{item.decode()}, ...]}}"', rb'"{\"a\":[', (inner,), b']}"'
            yield '"a...\U0001f600"', '"\U0001f600'.encode(), (b"", b"a"), b'"'
        if kind in ("integer", "number"):
            yield "1111...", b"", (b"", b"1"), b""
            yield "0.111...", b"0.1", (b"", b"1"), b""
        nested = b'{"a":[' * DEEP + b"]}" * DEEP
        yield "nested", b"[", (nested,), b"]"

    def _smallest(self, schema: dict[str, Any]) -> Any:
        """A legal value without anything that can be left out; texts may be arguments, so they are JSON."""
        one = self._branches(schema)[0]
        if "const" in one or "enum" in one:
            return one.get("const", one.get("enum", [None])[0])
        if one.get("type") == "object":
            return {name: self._smallest(one["properties"][name]) for name in one.get("required", ())}
        least = one.get("minimum", 0)
        smallest = {"array": [], "string": "{}", "boolean": True}
        return smallest.get(one.get("type", "null"), least if one.get("type") in ("integer", "number") else None)

    def _branches(self, schema: dict[str, Any]) -> list[dict[str, Any]]:
        """What a schema allows, each with its references followed; null last."""
        found = [branch for one in schema.get("anyOf", [schema]) for branch in self._followed(one)]
        return sorted(found, key=lambda one: one.get("type") == "null")

    def _followed(self, schema: dict[str, Any]) -> list[dict[str, Any]]:
        reference = schema.get("$ref")
        return self._branches(self._definitions[reference.rpartition("/")[2]]) if reference else [schema]


def _put(body: Any, value: Any) -> Any:
    """The body with a value in its hole."""
    if body == HOLE:
        return value
    if isinstance(body, dict):
        return {name: _put(one, value) for name, one in body.items()}
    return [_put(one, value) for one in body] if isinstance(body, list) else body


def _joined(pieces: tuple[bytes, ...], room: int) -> bytes:
    """Entries up to so many bytes, with commas between them, or texts with nothing: those begin with an empty piece."""
    if len(pieces) == 2:
        return pieces[1] * (room // len(pieces[1]))
    piece = pieces[0]
    if len(pieces) > 1:
        return b",".join(pieces[: room // (len(piece) + 1)])
    if b"%x" not in piece:
        return b",".join([piece] * (room // (len(piece) + 1)))
    count = room // (len(piece) + 5)
    return b",".join([piece % number for number in range(count)])
