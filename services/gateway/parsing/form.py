"""A form in which models write calls. Each file in `forms` holds one as FORM, and is found by its name."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from services.common.request.errors import invalid_field
from services.gateway.parsing import forms as folder
from services.gateway.parsing.output import Ending, Part

Schemas = Mapping[str, Any]
"""JSON Schemas of the arguments by function."""


def offered(name: str, schemas: Schemas) -> str:
    """The function that a name means: models put others before it, functions.f, where f alone was offered."""
    tail = name.rpartition(".")[2]
    return tail if name not in schemas and tail in schemas else name


class Body(Protocol):
    """One call as far as it has come. BrokenError of a method says that the text is no call."""

    @property
    def done(self) -> bool:
        """The call has ended; nothing more belongs to it."""

    @property
    def open(self) -> bool:
        """The call cannot end here."""

    rest: str
    """The text behind a call that is done."""

    def push(self, text: str, parts: list[Part]) -> None:
        """Appends the parts that became certain."""

    def finish(self, ending: Ending, parts: list[Part]) -> None:
        """The text has ended, and with it perhaps the call."""


@dataclass(frozen=True, slots=True)
class Written:
    """How a call is written: text before its name as JSON, between that and its arguments, behind them, between calls.

    Without text `between` calls there is one call at most.
    """

    before: str
    middle: str
    after: str
    between: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    """How calls of a form begin and end.

    `opening` and `closing` are the tags around calls, empty without. `bodies` are how a call itself begins, and what
    reads it, given the schemas and whether the call is loose: `loose` forms may stand without their tags where they
    name a function that was offered. `fits` judges a chat template. `written` is how a call can be required, None where
    it cannot.
    """

    name: str
    opening: str
    closing: str
    bodies: tuple[tuple[str, Callable[[Schemas, bool], Body]], ...]
    loose: bool
    fits: Callable[[str], bool]
    written: Written | None = None


def tags() -> frozenset[str]:
    """The tags of all forms. Where a tag is a special token, it must stand in the text to be seen."""
    return frozenset({tag for form in forms().values() for tag in (form.opening, form.closing)} - {""})


@cache
def forms() -> dict[str, Form]:
    """All forms by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(folder.__path__))
    return {name: importlib.import_module(f"{folder.__name__}.{name}").FORM for name in names}


def chosen(template: str, name: str = "") -> Sequence[Form]:
    """The forms that a model may write: the one named, or those that its chat template shows, or all.

    Raises:
        PacelineError: INVALID_FIELD, no form has this name.
    """
    known = forms()
    if name and name not in known:
        raise invalid_field("tool_parser", f"{name[:64]!r} is none of {', '.join(known)}")
    if name:
        return [known[name]]
    return [form for form in known.values() if form.fits(template)] or [*known.values()]
