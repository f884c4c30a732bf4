"""Takes calls of tools out of a text. A call is passed on when it is whole; text that is no call stays content."""

from collections.abc import Mapping
from typing import Any

from services.gateway.http.output import Call, Content, Part, held
from services.gateway.http.tools.hermes import hermes_call
from services.gateway.http.tools.xml import xml_call

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class CallSplitter:
    """Knows both forms by what stands behind the tag, so that no model needs a setting."""

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        """Takes the JSON Schemas of the arguments by function."""
        self._schemas = schemas
        self._kept = ""
        self._inside = False
        self._blank = ""
        self._called = False

    def push(self, text: str) -> list[Part]:
        """The parts that became certain."""
        self._kept += text
        parts: list[Part] = []
        while self._step(parts):
            pass
        return parts

    def finish(self) -> list[Part]:
        """A call whose end is missing is one if it is whole without it."""
        kept, self._kept = self._kept, ""
        call = self._call(kept) if self._inside else None
        if call is not None:
            return [call]
        text = self._blank + (OPEN if self._inside else "") + kept
        self._blank, self._inside = "", False
        return [Content(text)] if text and not (self._called and text.isspace()) else []

    def _step(self, parts: list[Part]) -> bool:
        """Takes one piece; False when more text is needed."""
        if self._inside:
            found, closed, rest = self._kept.partition(CLOSE)
            if not closed:
                return False
            self._kept, self._inside = rest, False
            call = self._call(found)
            if call is None:
                self._tell(parts, OPEN + found + CLOSE)
            else:
                self._blank, self._called = "", True
                parts.append(call)
            return True
        before, opened, rest = self._kept.partition(OPEN)
        certain = len(before) if opened else len(before) - held(before, OPEN)
        self._tell(parts, before[:certain])
        self._inside, self._kept = bool(opened), rest if opened else before[certain:]
        return bool(opened)

    def _tell(self, parts: list[Part], text: str) -> None:
        """Content; blanks wait for what follows, for those around calls are none."""
        text = self._blank + text
        certain = len(text.rstrip())
        self._blank = text[certain:]
        if certain:
            parts.append(Content(text[:certain]))

    def _call(self, text: str) -> Call | None:
        text = text.strip()
        return hermes_call(text) if text.startswith("{") else xml_call(text, self._schemas)
