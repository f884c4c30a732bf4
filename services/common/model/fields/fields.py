"""A JSON object whose keys must all be understood."""

import json
import reprlib
import sys
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from services.common.model.fields.errors import ModelError
from services.common.serving.files import read_regular

_REQUIRED: Any = object()
_MOST = 1 << 31
"""Larger than any size of a model."""


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object that a file holds.

    Raises:
        ModelError: the file is missing or malformed, or holds something else.
    """
    try:
        values = json.loads(read_regular(path))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        told = "brackets are nested too deeply" if isinstance(error, RecursionError) else error
        raise ModelError(f"{path}: cannot be read: {told}; fetch it again") from error
    if not isinstance(values, dict):
        raise ModelError(f"{path}: is not a JSON object; fetch it again")
    return values


class Fields:
    """Typed access to the keys of one object; remembers which were read, so that the rest can be refused."""

    def __init__(self, source: Path, values: Mapping[str, Any], prefix: str = "") -> None:
        self.source = source
        self.prefix = prefix
        self._values = values
        self._seen: set[str] = set()

    def __bool__(self) -> bool:
        """Whether there is any key."""
        return bool(self._values)

    def equals(self, other: "Fields") -> bool:
        """Whether another object holds the same."""
        return self._values == other._values

    def filled(self, usual: Mapping[str, Any]) -> "Fields":
        """Return the object with what files of its kind leave out."""
        return Fields(self.source, {**usual, **self._values}, self.prefix)

    def error(self, name: str, message: str) -> ModelError:
        """Return an error that names the file and the key."""
        return ModelError(f"{self.source}: {self.prefix}{name}: {message}")

    def take(self, name: str, kinds: tuple[type, ...], default: Any = _REQUIRED) -> Any:
        """Return the value of a key that must be of one of `kinds`."""
        self._seen.add(name)
        if name not in self._values:
            if default is _REQUIRED:
                raise self.error(name, "is missing")
            return default
        value = self._values[name]
        if type(value) not in kinds:
            raise self.error(name, f"has the wrong type: {reprlib.repr(value)}")
        return value

    def nested(self, name: str) -> "Fields":
        """Return the object at a key; an absent one and null are empty."""
        values = self.take(name, (dict, type(None)), default=None)
        return Fields(self.source, values or {}, prefix=f"{self.prefix}{name}.")

    def positive(self, name: str, default: Any = _REQUIRED, most: int = _MOST) -> int:
        """Return a key that must be an integer in [1, most]; null counts as absent when there is a default."""
        value: int = self._take_number(name, (int,), default)
        if not 0 < value <= most:
            raise self.error(name, f"must be in [1, {most}], is {reprlib.repr(value)}")
        return value

    def number(self, name: str, default: Any = _REQUIRED) -> float:
        """Return a key that must be a finite number above zero; null counts as absent when there is a default."""
        value = self._take_number(name, (int, float), default)
        if not 0 < value <= sys.float_info.max:
            raise self.error(name, f"must be positive and finite, is {reprlib.repr(value)}")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        """Return the same of a key that may be absent or null."""
        self._seen.add(name)
        return None if self._values.get(name) is None else self.number(name)

    def neutral(self, name: str, allowed: tuple[Any, ...]) -> None:
        """Refuse a key whose value asks for arithmetic that is not implemented."""
        if name in self._values and name not in self._seen and self._values[name] not in allowed:
            raise self.error(name, f"{reprlib.repr(self._values[name])} is not supported")
        self._seen.add(name)

    def finish(self, ignored: Set[str]) -> tuple[str, ...]:
        """Refuse every key that was neither read nor is known to be harmless; return the harmless ones."""
        rest = sorted(set(self._values) - self._seen)
        for name in rest:
            if name not in ignored:
                raise self.error(reprlib.repr(name)[1:-1], "is not a supported key")
        return tuple(rest)

    def _take_number(self, name: str, kinds: tuple[type, ...], default: Any) -> Any:
        if default is not _REQUIRED and self._values.get(name, default) is None:
            self._seen.add(name)
            return default
        return self.take(name, kinds, default)
