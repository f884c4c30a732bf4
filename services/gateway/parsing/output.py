"""The parts of a chat's text: thoughts, content and calls of tools."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

_BLANKS = re.compile(r"\s")


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What the model thought."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call begins; its arguments follow in pieces, and CallEnd or CallCut ends it."""

    name: str


@dataclass(slots=True)
class CallPiece:
    """More of the arguments; all pieces of a call together are a JSON object, none without the last is."""

    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The call is whole."""


@dataclass(frozen=True, slots=True)
class CallCut:
    """The call ended before it was whole, so it is none; its text follows as content."""


Part = Content | Reasoning | CallStart | CallPiece | CallEnd | CallCut


class Ending(Enum):
    """Why a text ended: the model ended it, a stop string did, or it was cut by a limit."""

    ITSELF = "itself"
    STOPPED = "stopped"
    CUT = "cut"


class Splitter(Protocol):
    """Takes text in pieces, cut anywhere, and gives the same parts however it was cut."""

    def push(self, text: str) -> list[Part]:
        """The parts that became certain."""

    def finish(self, ending: Ending) -> list[Part]:
        """What the end of the text makes certain."""


class AllContent:
    """Text that is nothing but content."""

    def push(self, text: str) -> list[Part]:
        """The text itself."""
        return [Content(text)] if text else []

    def finish(self, ending: Ending) -> list[Part]:
        """Nothing is held back."""
        return []


class Gap:
    """Text, mostly blanks, that waits for what follows it; adding to it costs what is added."""

    def __init__(self) -> None:
        """Empty."""
        self._texts: list[str] = []
        self.has_line = False
        """A line ends in it."""

    def add(self, text: str) -> None:
        """More text at its end."""
        if text:
            self._texts.append(text)
            self.has_line = self.has_line or "\n" in text

    def has(self, mark: str) -> bool:
        """Whether a mark stands in it."""
        return any(mark in text for text in self._texts)

    def taken(self) -> str:
        """All of it; nothing waits any more."""
        text, self._texts, self.has_line = "".join(self._texts), [], False
        return text


class Closing:
    """A closing tag, also where blanks stand in it outside its word."""

    def __init__(self, tag: str) -> None:
        """Takes the tag as it should be."""
        word = re.escape(tag.removeprefix("</").removesuffix(">"))
        self._tag = tag
        self._whole = re.compile(rf"<\s{{0,8}}/\s{{0,8}}{word}\s{{0,8}}>")

    def end(self, text: str) -> int:
        """Where the tag ends that a text begins with; 0 where it begins with none."""
        found = self._whole.match(text)
        return found.end() if found else 0

    def may_come(self, text: str) -> bool:
        """Whether a text may become the tag."""
        return len(text) < len(self._tag) + 24 and self._tag.startswith(_BLANKS.sub("", text))


def held(text: str, tag: str) -> int:
    """Characters at the end of a text that may become the tag."""
    longest = min(len(text), len(tag) - 1)
    return next((size for size in range(longest, 0, -1) if tag.startswith(text[-size:])), 0)


def held_of(text: str, tags: Iterable[str]) -> int:
    """Characters at the end of a text that may become one of the tags."""
    return max((held(text, tag) for tag in tags), default=0)
