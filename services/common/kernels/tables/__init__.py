"""What was measured to be quicker than a rule, as data: no entry changes a bit, so tables may differ between machines.

`sm_90.json` has cuts of this project's products, for all GPUs of its kind: measured on an H200. A file named as a GPU
has algorithms of the library, each for one version of it. A cut that is null means that the library was quicker.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent
CUTS = "sm_90"
_ENGINES = ("bands", "tiles", "triton", "cublaslt")


class Entry(NamedTuple):
    """A product of a weight [lines, depth] with up to so many rows, what follows it, and how an engine cuts it.

    A library's cut is an algorithm as text, for exactly so many rows and one `version`; others are sizes by name.
    """

    engine: str
    lines: int
    depth: int
    kind: str
    format: str
    rows: int
    cut: Mapping[str, Any] | str | None
    version: int = 0


class Table(NamedTuple):
    """A file: the GPU that its entries were measured on."""

    gpu: str
    entries: tuple[Entry, ...]


class TableError(ValueError):
    """A table is none: the message names the file and the entry."""


@cache
def tables(folder: Path = FOLDER) -> Mapping[str, Table]:
    """Return all tables by name.

    Raises:
        TableError: a file is none.
    """
    return {path.stem: parsed(path.read_text(encoding="utf-8"), path.name) for path in sorted(folder.glob("*.json"))}


def cuts(engine: str, weights: str = "bf16") -> Iterator[Entry]:
    """Yield what an engine of this project's own has for weights of a format."""
    return (entry for entry in tables()[CUTS].entries if (entry.engine, entry.format) == (engine, weights))


def parsed(text: str, name: str) -> Table:
    """Return what a file holds.

    Raises:
        TableError: it is no table.
    """
    try:
        document = json.loads(text)
        table = Table(document["gpu"], tuple(Entry(**row) for row in document["entries"]))
    except (ValueError, TypeError, KeyError) as error:
        raise TableError(f"{name}: {error}") from error
    for entry in table.entries:
        sizes = entry.lines, entry.depth, entry.rows
        if entry.engine not in _ENGINES or not all(isinstance(size, int) and size > 0 for size in sizes):
            raise TableError(f"{name}: no engine multiplies so: {entry}")
    return table


def name_of(gpu: str) -> str:
    """Return the name of a GPU's table: "NVIDIA H200" has nvidia_h200.json."""
    return re.sub(r"\W+", "_", gpu.lower())


def text_of(table: Table) -> str:
    """Return the text of a table, an entry a line."""
    rows = ({key: value for key, value in row._asdict().items() if key != "version" or value} for row in table.entries)
    lines = ",\n".join(json.dumps(row) for row in rows)
    return f'{{"gpu": {json.dumps(table.gpu)}, "cc": "9.0", "sms": 132, "entries": [\n{lines}\n]}}\n'
