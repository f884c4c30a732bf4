"""The text of the table's module, with the rows that were measured in place of those before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from services.common.kernels.linear import algorithms
from services.common.kernels.linear.allowed import Product

Table = Mapping[tuple[str, int], Mapping[Product, str]]
MODULE = Path(algorithms.__file__)


def merged(known: Table, gpu: str, version: int, rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return the table with all products that were measured as they were found now, others as they were."""
    key = (gpu, version)
    now = dict(known.get(key, {}))
    for row in rows:
        product = (row["outputs"], row["depth"], row["rows"])
        if "error" in row:
            continue
        now.pop(product, None)
        if row.get("enters"):
            now[product] = row["algorithm"]
    return {**known, key: now}


def text_of(table: Table, before: str) -> str:
    """Return the module's text, of which everything up to the table stays as it was before."""
    name = "ALGORITHMS: "
    head = before[: before.index(name)]
    kind = before[before.index(name) :].partition(" = ")[0]
    lines = []
    for (gpu, version), rows in sorted(table.items()):
        if rows:
            inner = [f'        {product}: "{text}",' for product, text in sorted(rows.items())]
            lines += [f'    ("{gpu}", {version}): {{', *inner, "    },"]
    body = "\n".join(["{", *lines, "}"]) if lines else "{}"
    return f"{head}{kind} = {body}\n"
