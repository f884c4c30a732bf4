"""What rounds were measured to take, kept for later starts of the same numerics, models and shapes.

Live rounds correct them, as where a neighbour shared the GPU when they were measured.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TypeVar

from services.target.device.exact.verdict import kept_file, write_whole

_LOG = logging.getLogger(__name__)
_Key = TypeVar("_Key")


class KeptTimes:
    """Tables of microseconds in a file beside the verdict; without a key nothing is kept."""

    def __init__(self, key: str = "", folder: Path | None = None) -> None:
        """`folder` is that of Triton's compiled kernels, by default the one that it uses."""
        self._path = kept_file(f"{key}.times", folder) if key else None
        self._tables = self._read()

    def recall(self, name: str, keys: Sequence[_Key]) -> dict[_Key, float] | None:
        """Return a table of these keys, as an earlier start has measured it; None where none has."""
        found = self._tables.get(name, ())
        return dict(zip(keys, found, strict=True)) if len(found) == len(keys) and keys else None

    def keep(self, name: str, table: Mapping[_Key, float]) -> None:
        """Keep a table, whose keys are in the order of `recall`."""
        self._tables[name] = list(table.values())
        if self._path is not None:
            write_whole(self._path, json.dumps(self._tables))

    def _read(self) -> dict[str, list[float]]:
        if self._path is None:
            return {}
        try:
            found = {name: list(map(float, times)) for name, times in json.loads(self._path.read_text()).items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            _LOG.warning("the kept times %s cannot be read: %s", self._path, error)
            return {}
        return {name: times for name, times in found.items() if all(isfinite(time) and time >= 0.0 for time in times)}
