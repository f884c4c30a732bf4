"""What was measured to be quicker than a rule, as data: no entry changes a bit.

`sm_90.json` has cuts of this project's products, for all GPUs of its kind: measured on an H200. A cut that is null
means that the library was quicker.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

CUTS = Path(__file__).parent / "sm_90.json"
_ENGINES = ("bands", "tiles")


class Entry(NamedTuple):
    """A product of a weight [lines, depth] with up to so many rows, what follows it, and how an engine cuts it.

    A cut is sizes by name.
    """

    engine: str
    lines: int
    depth: int
    kind: str
    format: str
    rows: int
    cut: Mapping[str, Any] | None


class Table(NamedTuple):
    """A file: the GPU that its entries were measured on."""

    gpu: str
    entries: tuple[Entry, ...]


class TableError(ValueError):
    """A table is none: the message names the file and the entry."""


@cache
def table() -> Table:
    """Return what was measured.

    Raises:
        TableError: the file is none.
    """
    return parsed(CUTS.read_text(encoding="utf-8"), CUTS.name)


def cuts(engine: str, weights: str = "bf16") -> Iterator[Entry]:
    """Yield what an engine has for weights of a format."""
    return (entry for entry in table().entries if (entry.engine, entry.format) == (engine, weights))


def parsed(text: str, name: str) -> Table:
    """Return what a file holds.

    Raises:
        TableError: it is no table.
    """
    try:
        document = json.loads(text)
        found = Table(document["gpu"], tuple(Entry(**row) for row in document["entries"]))
    except (ValueError, TypeError, KeyError) as error:
        raise TableError(f"{name}: {error}") from error
    for entry in found.entries:
        sizes = entry.lines, entry.depth, entry.rows
        if entry.engine not in _ENGINES or not all(isinstance(size, int) and size > 0 for size in sizes):
            raise TableError(f"{name}: no engine multiplies so: {entry}")
    return found


def text_of(found: Table) -> str:
    """Return the text of a table, an entry a line."""
    lines = ",\n".join(json.dumps(row._asdict()) for row in found.entries)
    return f'{{"gpu": {json.dumps(found.gpu)}, "cc": "9.0", "sms": 132, "entries": [\n{lines}\n]}}\n'
