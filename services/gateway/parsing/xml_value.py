"""The value of a parameter that is written between tags."""

from services.gateway.parsing.json_value import quoted
from services.gateway.parsing.output import CallPiece, Part
from services.gateway.parsing.schema import Kinds, written
from services.gateway.parsing.xml_tags import MOST_BLANK, first_tag

WAITS = -2
"""In the place of a tag: more text must tell whether there is one."""


class Value:
    """One value: text goes on at once, unless it may still be null or one of several texts."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._begun = False
        self._texts: list[str] = []
        self._size = 0

    def passed(self, text: str, within: bool, parts: list[Part]) -> tuple[str, int]:
        """Passes on what is text of a value that has begun, whatever follows; `within` a function in it or not.

        Returns:
            The rest, and where in it the first tag may begin: WAITS where more text must tell, -1 where nobody looked.
        """
        if not self._begun or not text:
            return text, -1
        start, waits = first_tag(text, within) if "<" in text else (-1, True)
        certain = before_line_end(text, start if start >= 0 else len(text))
        if certain:
            parts.append(CallPiece(quoted(text[:certain])))
            text = text[certain:]
        return text, WAITS if waits else start - certain

    def add(self, text: str, parts: list[Part]) -> None:
        """Takes more of a value; it is told piece by piece once its type is known."""
        if self._begun:
            parts.append(CallPiece(quoted(text)))
            return
        self._texts.append(text)
        self._size += len(text)
        if self._kinds.is_text and (self._size > MOST_BLANK or not (self._kinds.values or self._may_be_null())):
            self._begun = True
            parts.append(CallPiece('"' + quoted(self._whole())))

    def close(self, parts: list[Part]) -> None:
        """The value has ended."""
        parts.append(CallPiece('"' if self._begun else written(self._whole(), self._kinds)))

    def _may_be_null(self) -> bool:
        return "null" in self._kinds.types and "null".startswith(self._whole().strip())

    def _whole(self) -> str:
        text = "".join(self._texts)
        return text[2:] if text.startswith("\r\n") else text.removeprefix("\n")


def before_line_end(text: str, end: int) -> int:
    """Where the line end begins that a text has before `end`: one before a tag may belong to the tag."""
    if end and text[end - 1] in "\r\n":
        return end - (2 if text.endswith("\r\n", 0, end) else 1)
    return end
