"""Counts what a JSON text holds before any of it becomes objects: 4 MiB of `{},` would become a hundred times as much.

A legal request has far less of everything. The counts run at the speed of C but for one loop, which they bound.
"""

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
        # Without escapes every quote begins or ends a string, as far as the text is JSON.
        plain = text.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in text else text
        self._strings += (plain.count(b'"') + 1) // 2
        _check(field, "strings", self._strings, MOST_STRINGS)
        outside = b"".join(plain.split(b'"')[::2])
        containers = outside.count(b"{") + outside.count(b"[")
        self._containers += containers
        _check(field, "objects and lists", self._containers, MOST_CONTAINERS)
        self._values += containers + outside.count(b",")
        _check(field, "values", self._values, MOST_VALUES)
        if outside.count(b":") > MOST_KEYS:
            _check(field, "fields in one object", _most_keys(outside), MOST_KEYS)


def _most_keys(outside: bytes) -> int:
    """Fields of the object that has most; at most two steps for each container and one for each string."""
    most, open_ones = 0, [0]
    for mark in outside.translate(None, OTHERS):
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
        text = f"{field or 'body'}: {count} {what}, at most {limit} are allowed"
        raise PacelineError(Code.INVALID_ARGUMENT, Reason.INVALID_FIELD, text, field)
