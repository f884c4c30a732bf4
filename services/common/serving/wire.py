"""Counts the fields of a message on the wire before protobuf makes an object of each.

Two bytes of an empty message become a hundred in memory, so that a bound on bytes bounds nothing. What is repeated here
is found by the descriptor of the message, so that a field has its bound from the day it is added.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

MOST_FIELDS = 32_768
"""Fields of one message and of all messages in it. A list of numbers is one, packed or not: bytes bound its memory."""

_VARINT, _BYTES, _GROUP, _GROUP_END = 0, 2, 3, 4
_FIXED = {1: 8, 5: 4}
_MOST_DEPTH = 128
"""Deeper messages protobuf refuses itself."""

_VARINT_TYPES = {
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
    FieldDescriptor.CPPTYPE_BOOL,
    FieldDescriptor.CPPTYPE_ENUM,
}


class TooManyFieldsError(ValueError):
    """A message has more fields than any request needs; its text names the field at which they were too many."""


class Shape:
    """What may stand in a message: other messages and lists of numbers, by tag."""

    def __init__(self, name: str, descriptor: Descriptor | None) -> None:
        """`name` is the path from the outermost message; what has no descriptor is of no known field."""
        self.name = name
        self._descriptor = descriptor

    @cached_property
    def inner(self) -> dict[int, Shape]:
        """Shapes of messages; made when first asked for, because messages may hold themselves."""
        prefix = f"{self.name}." if self.name else ""
        return {
            each.number << 3 | _BYTES: Shape(prefix + each.name, each.message_type)
            for each in self._fields
            if each.message_type is not None
        }

    @cached_property
    def runs(self) -> dict[int, re.Pattern[bytes]]:
        """What finds all of a list of varints that is not packed; possessive, because a step back would cost memory."""
        tags = (
            each.number << 3 | _VARINT for each in self._fields if each.is_repeated and each.cpp_type in _VARINT_TYPES
        )
        return {
            tag: re.compile(rb"(?:" + re.escape(_written(tag)) + rb"[\x80-\xff]{0,9}+[\x00-\x7f])++") for tag in tags
        }

    @property
    def _fields(self) -> Sequence[FieldDescriptor]:
        return self._descriptor.fields if self._descriptor is not None else ()


_NOTHING = Shape("an unknown group", None)


@cache
def shape_of(descriptor: Descriptor) -> Shape:
    """The shape of one type of message."""
    return Shape("", descriptor)


def check_fields(data: bytes, shape: Shape, most: int = MOST_FIELDS) -> None:
    """Looks at each field once, up to `most` of them.

    Raises:
        TooManyFieldsError: the message has more.
        DecodeError: it is no message.
    """
    position, end, latest = 0, len(data), shape
    outer: list[tuple[Shape, int, bool]] = []
    for _ in range(most + 1):
        while position == end:
            if not outer:
                return
            shape, end = _left(outer)
        tag, value = _varint(data, position, end)
        kind = tag & 7
        if kind == _BYTES:
            inner, (start, position) = shape.inner.get(tag), _sized(data, value, end)
            if inner is not None:
                outer.append((shape, end, False))
                shape, latest, position, end = inner, inner, start, position
        elif kind == _GROUP:
            outer.append((shape, end, True))
            shape, position = _NOTHING, value
        elif kind == _GROUP_END:
            shape, position = _ended(outer), value
        else:
            position = _behind_numbers(shape.runs.get(tag), data, position, end)
        if len(outer) > _MOST_DEPTH:
            raise DecodeError("messages are nested too deeply")
    raise TooManyFieldsError(f"{latest.name or 'the message'}: more than {most} fields in one message")


def _left(outer: list[tuple[Shape, int, bool]]) -> tuple[Shape, int]:
    shape, end, group = outer.pop()
    if group:
        raise DecodeError("a group does not end")
    return shape, end


def _ended(outer: list[tuple[Shape, int, bool]]) -> Shape:
    if not outer or not outer[-1][2]:
        raise DecodeError("no group began")
    return outer.pop()[0]


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """The number that begins at a position, and the position behind it."""
    found = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, position
        shift += 7
    raise DecodeError("a number does not end")


def _sized(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Where the bytes begin whose length stands at a position, and where they end."""
    size, start = _varint(data, position, end)
    if size > end - start:
        raise DecodeError("a field is longer than its message")
    return start, start + size


def _behind_numbers(run: re.Pattern[bytes] | None, data: bytes, start: int, end: int) -> int:
    """The position behind the number whose tag stands at `start`, and behind all of its list that follow."""
    found = run.match(data, start, end) if run is not None else None
    if found is not None:
        return found.end()
    tag, value = _varint(data, start, end)
    kind = tag & 7
    if kind == _VARINT:
        return _varint(data, value, end)[1]
    if kind not in _FIXED:
        raise DecodeError("a field has no known type")
    if value + _FIXED[kind] > end:
        raise DecodeError("a number does not end")
    return value + _FIXED[kind]


def _written(tag: int) -> bytes:
    found = bytearray()
    while tag >= 0x80:
        found.append(tag & 0x7F | 0x80)
        tag >>= 7
    return bytes(found) + bytes((tag,))
