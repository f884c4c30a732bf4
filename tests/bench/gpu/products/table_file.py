"""The text of the table's module, with the rows that were measured in place of those before."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from services.common.kernels.linear import algorithms
from services.common.kernels.linear.allowed import Product

Table = Mapping[tuple[str, int], Mapping[Product, str]]
MODULE = Path(algorithms.__file__)
RESULTS = Path(__file__).parents[2] / "results"


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


def saved(folder: Path) -> list[dict[str, Any]]:
    """Return what was saved in a folder, oldest first."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("gpu_*_products_*.json"))]


def ranked_before(folder: Path, gpu: str, version: int) -> set[Product]:
    """Return the products that saved files have for a GPU and a version of the library, errors aside."""
    here = (one["rows"] for one in saved(folder) if (one["device"], one["cublaslt"]) == (gpu, version))
    return {(row["outputs"], row["depth"], row["rows"]) for rows in here for row in rows if "error" not in row}


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
