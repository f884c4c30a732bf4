"""Reads one JSON value from text that comes in pieces, and mends what models do wrong."""

import json
import math
import re
from collections.abc import Callable

DEEPEST = 64
"""Levels of a value; deeper ones are no call, and the contract takes no deeper ones back."""

MOST_LITERAL = 4096
"""Characters of a number."""

_PLAIN = {'"': re.compile(r'[^"\\\x00-\x1f]*'), "'": re.compile(r"[^'\"\\\x00-\x1f]*")}
_SPECIAL = {'"': re.compile(r'["\\\x00-\x1f]'), "'": re.compile(r"['\"\\\x00-\x1f]")}
_BLANK = re.compile(r"[ \t\r\n]*")
_LITERAL = re.compile(r"[^\s,:{}()\[\]\"']*")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_LOOSE = re.compile(r"\+?(-?)0*(\d*)(?:(\.)(\d*))?([eE][+-]?\d+)?", re.ASCII)
_LOW = re.compile(r"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_HEXADECIMAL = re.compile(r"[+-]?0[xX][0-9a-fA-F]{1,256}")
_NAMED = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_NOT_FINITE = {"NaN", "nan", "Infinity", "-Infinity", "inf", "-inf"}
_LONE = "\\ufffd"


class BrokenError(ValueError):
    """The text is no call; `rest` begins where that became clear."""

    rest = ""


def quoted(text: str) -> str:
    """Text as JSON writes it between quotes."""
    return json.encoder.encode_basestring(text)[1:-1]


class JsonValue:
    """One value. It is written again as json.dumps does, so that it is JSON whatever was mended.

    Mended are line ends and unknown escapes in strings, strings in single quotes, lone surrogates, Python's names,
    numbers that JSON does not have (they become text) and commas before a closing bracket; in objects and lists also
    JavaScript's `undefined` and its numbers to the base of sixteen.
    """

    def __init__(self) -> None:
        """Nothing has come yet."""
        self.done = False
        self.quote = ""
        """The quotation mark of the string that is open; empty outside strings."""
        self._stack: list[str] = []
        self._expects = "value"
        self._comma = False
        self._wait = ""
        self._high = ""
        self._key = False

    @property
    def within(self) -> bool:
        """A string is open, or a literal that a blank ends: what comes is of the value, blanks included."""
        return bool(self.quote or self._wait)

    def plain(self, text: str) -> bool:
        """Whether all of a text goes on as it is: the usual case, told quickly."""
        return bool(self.quote) and not (self._wait or self._high) and not _SPECIAL[self.quote].search(text)

    def push(self, text: str, out: list[str]) -> str:
        """Appends to `out` what became certain and returns the text behind the value.

        Raises:
            BrokenError: it is no value, mended or not.
        """
        if self._wait:
            text, self._wait = self._wait + text, ""
        at = 0
        try:
            while at < len(text) and not self.done:
                at = self._in_string(text, at, out) if self.quote else self._outside(text, at, out)
        except BrokenError as error:
            error.rest = text[at:]
            raise
        return text[at:]

    def finish(self, out: list[str]) -> None:
        """The text has ended, which ends a number.

        Raises:
            BrokenError: the value is not whole.
        """
        if not self.done and self._wait and not self._stack and not self.quote:
            self._literal(self._wait, out)
        if not self.done:
            raise BrokenError

    def _in_string(self, text: str, at: int, out: list[str]) -> int:
        end = _PLAIN[self.quote].match(text, at).end()  # type: ignore[union-attr]
        if end > at:
            self._lone(out)
            out.append(text[at:end])
        if end == len(text):
            return end
        found = text[end]
        if found == "\\":
            return self._escape(text, end, out)
        if found == self.quote:
            return self._quotation(text, end, out)
        self._lone(out)
        out.append(quoted(found))
        return end + 1

    def _quotation(self, text: str, at: int, out: list[str]) -> int:
        """The mark that ends a string."""
        self._lone(out)
        out.append('"')
        self.quote = ""
        self._ended()
        return at + 1

    def _escape(self, text: str, at: int, out: list[str]) -> int:
        kind = text[at + 1 : at + 2]
        if not kind or (kind == "u" and len(text) < at + 6 and _hexadecimal(text[at + 2 :])):
            self._wait = text[at:]
            return len(text)
        if kind == "u" and _hexadecimal(text[at + 2 : at + 6]):
            self._unicode(text[at : at + 6], out)
            return at + 6
        self._lone(out)
        if kind in '"\\/bfnrt':
            out.append("\\" + kind)
        elif kind == "'":
            out.append("'")
        else:
            out.append("\\\\")
            return at + 1
        return at + 2

    def _unicode(self, escape: str, out: list[str]) -> None:
        if _LOW.fullmatch(escape):
            out.append(self._high + escape if self._high else _LONE)
            self._high = ""
            return
        self._lone(out)
        if escape[2:4].lower() in ("d8", "d9", "da", "db"):
            self._high = escape
        else:
            out.append(escape)

    def _lone(self, out: list[str]) -> None:
        if self._high:
            out.append(_LONE)
            self._high = ""

    def _outside(self, text: str, at: int, out: list[str]) -> int:
        at = _BLANK.match(text, at).end()  # type: ignore[union-attr]
        if at == len(text):
            return at
        found = text[at]
        if found in "}]":
            self._close(found, out)
        elif found == ",":
            if self._expects != "comma":
                raise BrokenError
            self._comma, self._expects = True, "key" if self._stack[-1] == "{" else "value"
        elif found == ":":
            if self._expects != "colon":
                raise BrokenError
            out.append(": ")
            self._expects = "value"
        else:
            return self._begin(text, at, out)
        return at + 1

    def _begin(self, text: str, at: int, out: list[str]) -> int:
        found = text[at]
        if self._expects not in ("value", "key"):
            raise BrokenError
        if found not in "{[\"'":
            return self._bare(text, at, out)
        self._separate(out)
        if found in "\"'":
            self.quote, self._key = found, self._expects == "key"
            out.append('"')
        elif self._expects == "key" or len(self._stack) == DEEPEST:
            raise BrokenError
        else:
            self._stack.append(found)
            self._expects = "key" if found == "{" else "value"
            out.append(found)
        return at + 1

    def _bare(self, text: str, at: int, out: list[str]) -> int:
        end = _LITERAL.match(text, at).end()  # type: ignore[union-attr]
        if end - at > MOST_LITERAL or self._expects == "key" or end == at:
            raise BrokenError
        if end == len(text):
            self._wait = text[at:]
        else:
            self._literal(text[at:end], out)
        return end

    def _literal(self, text: str, out: list[str]) -> None:
        written = literal(text) or (_of_script(text) if self._stack else None)
        if written is None:
            raise BrokenError
        self._separate(out)
        out.append(written)
        self._ended()

    def _separate(self, out: list[str]) -> None:
        if self._comma:
            out.append(", ")
            self._comma = False

    def _close(self, found: str, out: list[str]) -> None:
        opened = self._stack[-1:] == [{"}": "{", "]": "["}[found]]
        # A value that is due may be missing only where nothing or a comma came before.
        empty = self._expects == "comma" or self._comma or out_of_turn(self._expects, found)
        if not opened or not empty:
            raise BrokenError
        self._stack.pop()
        self._comma = False
        out.append(found)
        self._ended()

    def _ended(self) -> None:
        """A string, a literal or a container has ended."""
        if self._key:
            self._key, self._expects = False, "colon"
        else:
            self.done, self._expects = not self._stack, "comma"


def out_of_turn(expects: str, closing: str) -> bool:
    """Whether a container that has just been opened may be closed at once."""
    return (expects, closing) in (("key", "}"), ("value", "]"))


def literal(text: str) -> str | None:
    """A bare word as JSON writes it; None where it stands for nothing."""
    if text in _NAMED:
        return _NAMED[text]
    if text in _NOT_FINITE:
        return f'"{text}"'
    try:
        value = float(text)
    except ValueError:
        return None
    if "_" in text or not text.isascii():
        return None
    if not math.isfinite(value):
        return f'"{text}"'
    return text if _NUMBER.fullmatch(text) else _digits(text.strip())


def _of_script(text: str) -> str | None:
    """A bare word that JavaScript has; alone it may be text."""
    if text == "undefined":
        return "null"
    return str(int(text, 16)) if _HEXADECIMAL.fullmatch(text) else None


def _digits(text: str) -> str:
    """As JSON writes a number with a plus, zeros before it or a bare point; a float would lose some digits."""
    sign, whole, point, fraction, exponent = _LOOSE.fullmatch(text).groups("")  # type: ignore[union-attr]
    return sign + (whole or "0") + (f".{fraction or '0'}" if point else "") + exponent


def value_of(text: str, kind: Callable[[], "JsonValue"] | None = None) -> str | None:
    """A whole text as one JSON value, mended, by a reader of a kind; None where it is none."""
    reader, out = (kind or JsonValue)(), list[str]()
    try:
        rest = reader.push(text.strip(" \t\r\n"), out)
        reader.finish(out)
    except BrokenError:
        return None
    return None if rest.strip() else "".join(out)


def _hexadecimal(text: str) -> bool:
    return all(one in "0123456789abcdefABCDEF" for one in text)
