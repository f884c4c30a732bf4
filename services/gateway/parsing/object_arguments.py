"""Arguments behind a function's tag as one JSON object: <function=name>{"key": value}</function>."""

from collections.abc import Sequence

from services.gateway.parsing.json_value import BrokenError, JsonValue
from services.gateway.parsing.output import CallEnd, CallPiece, CallStart, Ending, Part
from services.gateway.parsing.xml_tags import may_be_tag, tag_at

KEYED = ": "
"""Stands behind the first key; before it, braces may be anything."""


class ObjectArguments:
    """Reads the object and the tag that ends the function."""

    def __init__(self, name: str, closings: Sequence[str]) -> None:
        """Takes the function's name, and the kinds of tags that may follow on the object."""
        self.done = False
        self.rest = ""
        self._name = name
        self._closings = closings
        self._reader = JsonValue()
        self._early: list[str] = []
        self._started = False
        self._kept = ""

    def push(self, text: str, parts: list[Part]) -> None:
        """Appends the parts that became certain.

        Raises:
            BrokenError: it is no object, or something else than a closing tag follows on it.
        """
        if self._started and self._reader.plain(text):
            parts.append(CallPiece(text))
            return
        if self._reader.done:
            self._kept += text
        else:
            out: list[str] = []
            try:
                self._kept = self._reader.push(text, out)
            finally:
                self._tell(out, parts)
        if self._reader.done:
            self._after(parts)

    def finish(self, ending: Ending, parts: list[Part]) -> None:
        """The object may stand at the end of a text that the model ended.

        Raises:
            BrokenError: it does not.
        """
        if not self._reader.done or self._kept.strip() or ending is not Ending.ITSELF:
            raise BrokenError
        self._end("", parts)

    def _tell(self, out: list[str], parts: list[Part]) -> None:
        """Passes arguments on behind the first key; their last brace waits for the end of the call."""
        self._early += out[:-1] if self._reader.done else out
        if not self._started and (self._reader.done or KEYED in self._early):
            self._started = True
            parts.append(CallStart(self._name))
        if self._started and self._early:
            parts.append(CallPiece("".join(self._early)))
            self._early = []

    def _after(self, parts: list[Part]) -> None:
        text = self._kept.lstrip()
        found = tag_at(text)
        if found is not None and found.kind in self._closings:
            self._end(text, parts)
        elif found is not None or not may_be_tag(text):
            error = BrokenError()
            error.rest = self._kept
            raise error

    def _end(self, rest: str, parts: list[Part]) -> None:
        parts += [CallPiece("}"), CallEnd()]
        self.done, self.rest = True, rest
