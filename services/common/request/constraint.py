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
    """The token ids around a thought, which may come before what a grammar describes; `begun`: the prompt opens it.

    After `budget` tokens of it, None is no bound, the tokens `ending` are forced; the last of them is `closing`.
    """

    opening: int
    closing: int
    begun: bool
    budget: int | None = None
    ending: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Words:
    """Which tokens an output may hold: `allowed` ids, where empty is all, and none of some sequences in full."""

    allowed: tuple[int, ...] = ()
    banned: tuple[tuple[int, ...], ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is forbidden."""
        return bool(self.allowed or self.banned)


ANY_WORDS = Words()


@dataclass(frozen=True, slots=True)
class Rule:
    """What an output must be like, on its way to a target: the library's own text of a grammar, thought and words.

    An empty grammar allows everything.
    """

    grammar: str = ""
    thought: Thought | None = None
    words: Words = ANY_WORDS

    @property
    def forces(self) -> bool:
        """Whether tokens are forced or forbidden beside the grammar."""
        return bool(self.words) or (self.thought is not None and self.thought.budget is not None)
