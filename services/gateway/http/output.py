"""The parts of a chat's text: thoughts, content and calls of tools."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What the model thought."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function that the model asks for; arguments are a JSON object as text."""

    name: str
    arguments: str


Part = Content | Reasoning | Call


class Splitter(Protocol):
    """Takes text in pieces, cut anywhere, and gives the same parts however it was cut."""

    def push(self, text: str) -> list[Part]:
        """The parts that became certain."""

    def finish(self) -> list[Part]:
        """What the end of the text makes certain."""


class AllContent:
    """Text that is nothing but content."""

    def push(self, text: str) -> list[Part]:
        """The text itself."""
        return [Content(text)] if text else []

    def finish(self) -> list[Part]:
        """Nothing is held back."""
        return []


def held(text: str, tag: str) -> int:
    """Characters at the end of a text that may become the tag."""
    longest = min(len(text), len(tag) - 1)
    return next((size for size in range(longest, 0, -1) if tag.startswith(text[-size:])), 0)
