"""Counts what a JSON text holds before any of it becomes objects: 4 MiB of `{},` would become a hundred times as much.

A legal request has far less of everything. The counts run at the speed of C but for one loop, which they bound.
"""

from collections.abc import Iterator

from services.common.request.errors import Code, PacelineError, Reason
from services.common.request.limits import LIMITS

MOST_STRINGS = 1 << 16
"""Names of fields among them."""

MOST_CONTAINERS = 1 << 15
"""Objects and lists."""

MOST_VALUES = (1 << 18) + MOST_CONTAINERS
"""All values; most of them can only be the token ids of a prompt, of which 2**18 fill the longest contexts in use."""

MOST_KEYS = LIMITS.logit_bias
"""Of one object: each that is unknown would become an error."""

PART_BYTES = 1 << 16
"""What is looked at at once."""

BRACKETS_AND_COLONS = b"{}[]:"
OTHERS = bytes(set(range(256)) - set(BRACKETS_AND_COLONS))
OPEN_OBJECT, OPEN_LIST, COLON = b"{[:"


class Shape:
    """What the texts of one request hold together."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._strings = 0
        self._containers = 0
        self._values = 0

    def take(self, text: bytes | bytearray, field: str = "") -> None:
        """Adds a text; whether it is JSON at all, its parser tells.

        Raises:
            PacelineError: INVALID_FIELD, the field holds too much, or the body where none is named.
        """
        quotes = colons = closed = 0
        marks: list[bytes] = []
        for outside, found in _outside(text):
            quotes += found
            _check(field, "strings", self._strings + (quotes + 1) // 2, MOST_STRINGS)
            opened = outside.count(b"{") + outside.count(b"[")
            self._containers += opened
            closed += outside.count(b"}") + outside.count(b"]")
            _check(field, "objects and lists", max(self._containers, closed), MOST_CONTAINERS)
            self._values += opened + outside.count(b",")
            _check(field, "values", self._values, MOST_VALUES)
            colons += outside.count(b":")
            _check(field, "fields", colons, MOST_STRINGS)
            marks.append(outside.translate(None, OTHERS))
        self._strings += (quotes + 1) // 2
        if colons > MOST_KEYS:
            _check(field, "fields in one object", _most_keys(b"".join(marks)), MOST_KEYS)


def _outside(text: bytes | bytearray) -> Iterator[tuple[bytes, int]]:
    """What stands outside of strings, part by part, and how many quotes each part has; no copy of the whole is made."""
    within, rest = 0, b""
    for at in range(0, len(text), PART_BYTES):
        part = rest + text[at : at + PART_BYTES]
        rest = b""
        if b"\\" in part:
            if (len(part) - len(part.rstrip(b"\\"))) % 2:
                part, rest = part[:-1], b"\\"  # belongs to what follows
            # Without escapes every quote begins or ends a string, as far as the text is JSON.
            part = part.replace(rb"\\", b"").replace(rb"\"", b"")
        pieces = part.split(b'"')
        yield b"".join(pieces[within::2]), len(pieces) - 1
        within = (within + len(pieces) - 1) % 2


def _most_keys(marks: bytes) -> int:
    """Fields of the object that has most; at most two steps for each container and one for each string."""
    most, open_ones = 0, [0]
    for mark in marks:
        if mark == COLON:
            open_ones[-1] += 1
            most = max(most, open_ones[-1])
        elif mark in (OPEN_OBJECT, OPEN_LIST):
            open_ones.append(0)
        elif len(open_ones) > 1:
            open_ones.pop()
    return most


def _check(field: str, what: str, count: int, limit: int) -> None:
    if count > limit:
        text = f"{field or 'body'}: more than {limit} {what}"
        raise PacelineError(Code.INVALID_ARGUMENT, Reason.INVALID_FIELD, text, field)
