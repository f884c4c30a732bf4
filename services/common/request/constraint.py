"""What an output must be like, as clients say it, and as it travels to a target; knows no library and no wire."""

from dataclasses import dataclass
from enum import StrEnum


class Form(StrEnum):
    """How a client says what the output must be like."""

    JSON = "json"
    REGEX = "regex"
    CHOICE = "choice"
    GRAMMAR = "grammar"
    CALLS = "calls"


@dataclass(frozen=True, slots=True)
class Constraint:
    """What a client asks for, under the name `field` in its own words.

    `text` is a JSON Schema, a regular expression of the whole output, a JSON list of the texts to choose from, or a
    grammar in Lark's or GBNF's syntax. That of calls is a grammar that the gateway itself has made, with the client's
    schemas in it, which are its `parts`.
    """

    form: Form
    text: str
    field: str
    parts: tuple["Constraint", ...] = ()


@dataclass(frozen=True, slots=True)
class Thought:
    """The token ids around a thought, which may come before what a grammar describes; `begun`: the prompt opens it."""

    opening: int
    closing: int
    begun: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """A compiled-once constraint on its way to a target: the library's own text of the grammar, and the thought."""

    grammar: str
    thought: Thought | None = None
