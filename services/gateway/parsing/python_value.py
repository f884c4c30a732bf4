"""Reads one value as Python writes it: JSON's, and literals that JSON does not have."""

import ast
import json
import re
import unicodedata

from services.gateway.parsing.json_value import BrokenError, JsonValue, literal, quoted

TRIPLE = 3
"""Quotation marks around a text of several lines."""

MOST_ESCAPE = 100
"""Characters of an escape that names a character."""

LAST_CHARACTER = 0x10FFFF

_PREFIX = re.compile(r"[rRuUbB]{1,2}")
_NUMBER = re.compile(r"[+-]?(0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|[0-9_]+)", re.ASCII)
_OCTAL = re.compile(r"[0-7]{1,3}")
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]*")
_SIMPLE = {"a": "\a", "v": "\v", "\n": "", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SIMPLE |= {mark: mark for mark in "\\'\""}
_DIGITS = {"x": 2, "U": 8}
MOST_NUMBER = 64
"""Characters of a number that JSON writes otherwise."""


class PythonValue(JsonValue):
    """One value, written again as JSON.

    Texts may be raw or stand between three quotation marks, escapes are Python's, tuples are lists, and whole numbers
    may be written as 1_000 or 0x1F.
    """

    def __init__(self) -> None:
        """Nothing has come yet."""
        super().__init__()
        self._raw = False
        self._triple = False

    def _outside(self, text: str, at: int, out: list[str]) -> int:
        if text[at] == ")" and self._stack[-1:] == ["("]:
            self._stack[-1] = "["
            self._close("]", out)
            return at + 1
        return super()._outside(text, at, out)

    def _begin(self, text: str, at: int, out: list[str]) -> int:
        found = text[at]
        if found == "(":
            super()._begin("[", 0, out)
            self._stack[-1] = "("
            return at + 1
        if found not in "\"'":
            return super()._begin(text, at, out)
        ahead = text[at : at + TRIPLE]
        if len(ahead) < TRIPLE and not ahead.strip(found):
            return self._later(text, at)
        self._triple = ahead == found * TRIPLE
        super()._begin(text, at, out)
        return at + (TRIPLE if self._triple else 1)

    def _bare(self, text: str, at: int, out: list[str]) -> int:
        prefix = _PREFIX.match(text, at)
        if prefix and prefix.end() == len(text):
            return self._later(text, at)
        if prefix and text[prefix.end()] in "\"'":
            self._raw = "r" in prefix[0].lower()
            return prefix.end()
        return super()._bare(text, at, out)

    def _literal(self, text: str, out: list[str]) -> None:
        if literal(text) is None and len(text) <= MOST_NUMBER and _NUMBER.fullmatch(text):
            try:
                text = json.dumps(ast.literal_eval(text))
            except SyntaxError:
                raise BrokenError from None
        super()._literal(text, out)

    def _quotation(self, text: str, at: int, out: list[str]) -> int:
        if not self._triple:
            self._raw = False
            return super()._quotation(text, at, out)
        ahead = text[at : at + TRIPLE]
        if ahead == self.quote * TRIPLE:
            self._raw = self._triple = False
            super()._quotation(text, at, out)
            return at + TRIPLE
        if len(ahead) < TRIPLE and not ahead.strip(self.quote):
            return self._later(text, at)
        self._lone(out)
        out.append(quoted(self.quote))
        return at + 1

    def _escape(self, text: str, at: int, out: list[str]) -> int:
        kind = text[at + 1 : at + 2]
        if not kind:
            return self._later(text, at)
        if self._raw:
            self._lone(out)
            out.append(quoted(text[at : at + 2]))
            return at + 2
        if kind == "u":
            return super()._escape(text, at, out)
        end, character = _escaped(text, at + 1)
        if end is None:
            return self._later(text, at)
        self._lone(out)
        out.append(quoted(character))
        return end

    def _later(self, text: str, at: int) -> int:
        """More text must tell what begins here."""
        self._wait = text[at:]
        return len(text)


def _escaped(text: str, at: int) -> tuple[int | None, str]:
    """Where an escape ends that begins behind its backslash, and what it means; None where more text must tell."""
    kind = text[at]
    if kind in _SIMPLE:
        return at + 1, _SIMPLE[kind]
    if kind in _DIGITS:
        return _hexadecimal(text, at, _DIGITS[kind])
    if octal := _OCTAL.match(text, at):
        unsure = octal.end() == len(text) and len(octal[0]) < TRIPLE
        return (None, "") if unsure else (octal.end(), chr(int(octal[0], 8)))
    if kind == "N":
        return _character(text, at)
    return at, "\\"


def _hexadecimal(text: str, at: int, size: int) -> tuple[int | None, str]:
    found = _HEXADECIMAL.match(text[at + 1 : at + 1 + size])[0]  # type: ignore[index]
    if len(found) == size:
        code = int(found, 16)
        return (at + 1 + size, chr(code)) if code <= LAST_CHARACTER and not 0xD800 <= code < 0xE000 else (at, "\\")
    return (None, "") if at + 1 + len(found) == len(text) else (at, "\\")


def _character(text: str, at: int) -> tuple[int | None, str]:
    name, closed, _ = text[at + 1 : at + MOST_ESCAPE].partition("}")
    if not closed:
        return (None, "") if len(name) < MOST_ESCAPE - 1 else (at, "\\")
    try:
        return at + 2 + len(name), unicodedata.lookup(name.removeprefix("{"))
    except KeyError:
        return at, "\\"
