"""Llama 3.x behind its tag: JSON, or a call as Python writes it, name.call(key="value") or name(key="value")."""

import json
import re

from services.gateway.parsing.form import Form, Schemas, offered
from services.gateway.parsing.forms.llama3_json import shown
from services.gateway.parsing.json_call import JsonCall
from services.gateway.parsing.json_value import BrokenError
from services.gateway.parsing.output import CallEnd, CallPiece, CallStart, Ending, Part
from services.gateway.parsing.python_value import PythonValue

_HEAD = re.compile(r"\s*([A-Za-z_][\w.-]{0,255}?)(?:\.call)?\(")
_KEY = re.compile(r"[\s,]*([A-Za-z_]\w{0,255})\s*=\s*")
_END = re.compile(r"[\s,]*\)")
MOST_HEAD = 300
"""Characters in which a name ends."""


class PythonCall:
    """Reads name.call(key=value, ...), also without .call; values are JSON or Python's literals."""

    def __init__(self, schemas: Schemas, loose: bool) -> None:
        """Nothing has come yet."""
        self.done = False
        self.rest = ""
        self._schemas = schemas
        self._text = ""
        self._started = False
        self._reader: PythonValue | None = None
        self._written = "{"

    @property
    def open(self) -> bool:
        """The call cannot end here."""
        return not self.done

    def push(self, text: str, parts: list[Part]) -> None:
        """Appends the parts that became certain.

        Raises:
            BrokenError: it is no call.
        """
        if self._reader is not None and self._reader.plain(text):
            parts.append(CallPiece(text))
            return
        self._text += text
        try:
            while self._text and not self.done and self._step(parts):
                pass
        except BrokenError as error:
            error.rest = error.rest or self._text
            raise

    def finish(self, ending: Ending, parts: list[Part]) -> None:
        """A call without its bracket is none.

        Raises:
            BrokenError: always; who is done is not asked.
        """
        raise BrokenError

    def _step(self, parts: list[Part]) -> bool:
        """Takes one piece; False when more text is needed."""
        if self._reader is not None:
            return self._value(self._reader, parts)
        found = (_KEY if self._started else _HEAD).match(self._text)
        ended = _END.match(self._text) if self._started else None
        if ended:
            parts += [CallPiece("{}" if self._written == "{" else "}"), CallEnd()]
            self.done, self.rest = True, self._text[ended.end() :]
            return False
        if found is None:
            if len(self._text) > MOST_HEAD or not re.fullmatch(r"[\s,\w.\-(=]*", self._text):
                raise BrokenError
            return False
        self._text = self._text[found.end() :]
        if self._started:
            parts.append(CallPiece(self._written + json.dumps(found[1]) + ": "))
            self._written, self._reader = ", ", PythonValue()
        elif (name := offered(found[1], self._schemas)) not in self._schemas:
            raise BrokenError
        else:
            self._started = True
            parts.append(CallStart(name))
        return True

    def _value(self, reader: PythonValue, parts: list[Part]) -> bool:
        out: list[str] = []
        try:
            self._text = reader.push(self._text, out)
        finally:
            if out:
                parts.append(CallPiece("".join(out)))
        if reader.done:
            self._reader = None
        return bool(reader.done)


FORM = Form("llama3_python_tag", "<|python_tag|>", "", (("{", JsonCall), ("", PythonCall)), False, shown)
