"""Rows of what was measured: one line each as they come, a JSON file, and the table once more at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.bench.gpu.results import circumstances, tell

Row = dict[str, Any]
MODULE = "tests.bench.gpu.hybrid"


def save(stage: str, shape: str, rows: Iterable[Row], folder: str) -> int:
    """Returns the exit status: 1 when a row says that something is wrong, or there is none."""
    document: Row = {"bench": stage, **circumstances(shape, MODULE), "rows": []}
    path = Path(folder) / f"gpu_{stage}_{time.strftime('%Y-%m-%d')}.json" if folder else None
    for row in rows:
        document["rows"].append(row)
        tell(row)
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"--- {stage} on {document['device']}")
    for row in document["rows"]:
        if "ratio" in row:
            print(f"{row['ratio']:>8.3f}  bar {row.get('bar', '')!s:<12} {row['step']} {_where(row)}")
    return 0 if document["rows"] and not any(row.get("wrong") for row in document["rows"]) else 1


def _where(row: Row) -> str:
    return " ".join(f"{name} {row[name]}" for name in ("bucket", "width", "context", "pending", "us") if name in row)
