"""A call as a JSON object: {"name": ..., "arguments": {...}}, its keys in any order, also inside "function"."""

import json
from collections.abc import Callable

from services.gateway.parsing.form import Schemas, offered
from services.gateway.parsing.json_value import BrokenError, JsonValue, value_of
from services.gateway.parsing.output import CallEnd, CallPiece, CallStart, Ending, Part

NAMES = frozenset({"name", "function", "tool", "tool_name", "function_name"})
FUNCTION = "function"
ARGUMENTS = frozenset({"arguments", "parameters", "args", "input"})
OTHERS = frozenset({"type", "id"})
MOST_QUOTED = 2
"""Strings in one another that may hold the arguments."""

MOST_NAME = 256
"""Characters of a function's name, and of a key beside it."""


_Step = Callable[[str, list[Part]], str]
"""Takes text and returns what is left of it."""


class JsonCall:
    """Reads one object; its arguments are passed on as they come, once its name is known."""

    def __init__(self, schemas: Schemas, loose: bool, closing: str = "") -> None:
        """A `loose` call must name one of the functions; `closing` is a tag that ends a call without its last brace."""
        self.done = False
        self.rest = ""
        self._schemas = schemas
        self._loose = loose
        self._closing = closing
        self._step: _Step = self._opening
        self._wait = ""
        self._key = ""
        self._name = ""
        self._given = False
        self._inside = False
        self._strange = self._double = False
        self._early: list[str] = []
        self._reader = JsonValue()
        self._out: list[str] = []
        self._live = False
        self._started = False

    @property
    def open(self) -> bool:
        """The call cannot end here."""
        return not self.done

    def push(self, text: str, parts: list[Part]) -> None:
        """Appends the parts that became certain.

        Raises:
            BrokenError: it is no call.
        """
        if self._live and self._started and self._reader.plain(text):
            parts.append(CallPiece(text))
            return
        text, self._wait = self._wait + text, ""
        while text and not self.done:
            text = text if self._reader.within else text.lstrip(" \t\r\n")
            try:
                text = self._step(text, parts) if text else text
            except BrokenError as error:
                error.rest = error.rest or text
                raise
        self.rest = text

    def finish(self, ending: Ending, parts: list[Part]) -> None:
        """A call without its last brace is none.

        Raises:
            BrokenError: always; who is done is not asked.
        """
        raise BrokenError

    def _opening(self, text: str, _: list[Part]) -> str:
        self._step = self._before_key
        return _without(text, "{")

    def _before_key(self, text: str, parts: list[Part]) -> str:
        if text[0] == "{" and not self._key and not self._double:  # as templates write it in examples
            self._double = True
            return text[1:]
        if text[0] == "}":
            return self._brace(text[1:], parts)
        if text[0] not in "\"'":
            raise BrokenError
        self._read(self._in_key)
        return text

    def _in_key(self, text: str, _: list[Part]) -> str:
        text = self._reader.push(text, self._out)
        if sum(map(len, self._out)) > MOST_NAME:
            raise BrokenError
        if self._reader.done:
            self._key = json.loads("".join(self._out))
            self._strange = self._strange or self._key not in NAMES | ARGUMENTS | OTHERS
            if self._loose and self._strange:
                raise BrokenError
            self._step = self._colon
        return text

    def _colon(self, text: str, _: list[Part]) -> str:
        self._read(self._before_value)
        return _without(text, ":")

    def _before_value(self, text: str, _: list[Part]) -> str:
        """The function may be an object that holds the name and the arguments, as in OpenAI's API."""
        if self._key == FUNCTION and text[0] == "{" and not self._inside:
            self._inside, self._step = True, self._before_key
            return text[1:]
        self._step = self._in_value
        return text

    def _in_value(self, text: str, parts: list[Part]) -> str:
        try:
            text = self._reader.push(text, self._out)
        finally:
            if self._key in ARGUMENTS:
                self._in_arguments(parts)
        if self._key in ARGUMENTS:
            pass
        elif self._key not in NAMES:
            self._out.clear()
        elif sum(map(len, self._out)) > MOST_NAME:
            raise BrokenError
        if self._reader.done:
            self._step, self._live = self._after, False
            if self._key in NAMES:
                self._named(parts)
        return text

    def _after(self, text: str, parts: list[Part]) -> str:
        """What follows a value: the closing tag, another call, or the end of a list."""
        if self._closing and self._closing.startswith(text[: len(self._closing)]):
            if len(text) < len(self._closing):
                self._wait = text
                return ""
            return self._end(text, parts)
        if text[0] == "}":
            return self._brace(text[1:], parts)
        self._step = self._before_key
        return _without(text, ",")

    def _brace(self, rest: str, parts: list[Part]) -> str:
        """The end of the object, or of the function inside it."""
        if not self._inside:
            return self._end(rest, parts)
        self._inside, self._step = False, self._after
        return rest

    def _read(self, step: _Step) -> None:
        self._reader, self._out = JsonValue(), []
        self._step = step

    def _named(self, parts: list[Part]) -> None:
        name = json.loads("".join(self._out))
        name = offered(name.strip(), self._schemas) if isinstance(name, str) else ""
        if not name or self._name or (self._loose and name not in self._schemas):
            raise BrokenError
        self._name = name
        early, self._early = "".join(self._early), []
        if early:
            self._tell(early, parts)

    def _in_arguments(self, parts: list[Part]) -> None:
        """More of the arguments; their last brace waits for the end of the call."""
        if self._out and not self._live:
            if self._given or self._out[0] not in ("{", "[", '"', "null"):
                raise BrokenError
            self._live = self._out[0] == "{"
        text = "".join(self._out) if self._live else ""
        if self._live:
            self._out.clear()
            text = text[:-1] if self._reader.done else text
        elif self._reader.done:
            text = _object("".join(self._out))[:-1]
        self._given = self._given or self._reader.done
        if text:
            self._tell(text, parts)

    def _tell(self, text: str, parts: list[Part]) -> None:
        """Passes arguments on, once it is known whose they are."""
        if not self._name:
            self._early.append(text)
            return
        if not self._started:
            self._started = True
            parts.append(CallStart(self._name))
        parts.append(CallPiece(text))

    def _end(self, rest: str, parts: list[Part]) -> str:
        # Without arguments a strange key may have held them.
        if not self._name or (not self._given and (self._loose or self._strange)):
            raise BrokenError
        self._tell("}" if self._given else "{}", parts)
        parts.append(CallEnd())
        self.done = True
        return rest


def _object(value: str) -> str:
    """Arguments that are an object inside a string, or inside two; null and an empty list are none."""
    inner: str | None = value
    for _ in range(MOST_QUOTED):
        if inner is not None and inner[0] == '"':
            found = json.loads(inner)
            inner = value_of(found) if found.strip() else "{}"
    if inner in ("null", "[]"):
        return "{}"
    if inner is None or inner[0] != "{":
        raise BrokenError
    return inner


def _without(text: str, mark: str) -> str:
    if not text.startswith(mark):
        raise BrokenError
    return text[len(mark) :]
