"""A JSON object whose keys must all be understood."""

import math
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from services.common.model.errors import ModelError

_REQUIRED: Any = object()


class Fields:
    """Typed access to the keys of one object; remembers which were read, so that the rest can be refused."""

    def __init__(self, source: Path, values: Mapping[str, Any], prefix: str = "") -> None:
        self.source = source
        self._values = values
        self._prefix = prefix
        self._seen: set[str] = set()

    def error(self, name: str, message: str) -> ModelError:
        """Return an error that names the file and the key."""
        return ModelError(f"{self.source}: {self._prefix}{name}: {message}")

    def take(self, name: str, kinds: tuple[type, ...], default: Any = _REQUIRED) -> Any:
        """Return the value of a key that must be of one of `kinds`."""
        self._seen.add(name)
        if name not in self._values:
            if default is _REQUIRED:
                raise self.error(name, "is missing")
            return default
        value = self._values[name]
        if type(value) not in kinds:
            raise self.error(name, f"has the wrong type: {value!r}")
        return value

    def positive(self, name: str, default: Any = _REQUIRED) -> int:
        """Return a key that must be an integer above zero; null counts as absent when there is a default."""
        if default is not _REQUIRED and self._values.get(name, 0) is None:
            self._seen.add(name)
            return int(default)
        value: int = self.take(name, (int,), default)
        if value <= 0:
            raise self.error(name, f"must be positive, is {value}")
        return value

    def number(self, name: str, default: Any = _REQUIRED) -> float:
        """Return a key that must be a finite number above zero."""
        value = float(self.take(name, (int, float), default))
        if not math.isfinite(value) or value <= 0:
            raise self.error(name, f"must be positive, is {value}")
        return value

    def neutral(self, name: str, allowed: tuple[Any, ...]) -> None:
        """Refuse a key whose value asks for arithmetic that is not implemented."""
        if name in self._values and name not in self._seen and self._values[name] not in allowed:
            raise self.error(name, f"{self._values[name]!r} is not supported")
        self._seen.add(name)

    def finish(self, ignored: Set[str]) -> None:
        """Refuse every key that was neither read nor is known to be harmless."""
        unknown = sorted(set(self._values) - self._seen - ignored)
        if unknown:
            raise self.error(unknown[0], "is not a supported key")
