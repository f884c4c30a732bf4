"""The tables of algorithms, with the rows that were measured in place of those before."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from services.common.kernels.linear.algorithms import Algorithms
from services.common.kernels.linear.allowed import Product
from services.common.kernels.tables import FOLDER, Entry, Table, name_of, parsed, text_of

RESULTS = Path(__file__).parents[2] / "results"


def merged(known: Algorithms, gpu: str, version: int, rows: Iterable[Mapping[str, Any]]) -> Algorithms:
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
    """Return what was saved in a folder, oldest first; a file may hold several results."""
    read = [json.loads(path.read_text()) for path in sorted(folder.glob("gpu_*_products_*.json"))]
    return [one for many in read for one in (many if isinstance(many, list) else [many])]


def ranked_before(folder: Path, gpu: str, version: int) -> set[Product]:
    """Return the products that saved files have for a GPU and a version of the library, errors aside."""
    here = (one["rows"] for one in saved(folder) if (one["device"], one["cublaslt"]) == (gpu, version))
    return {(row["outputs"], row["depth"], row["rows"]) for rows in here for row in rows if "error" not in row}


def write(found: Algorithms, folder: Path = FOLDER) -> None:
    """Write the algorithms of each GPU into its table; what else a table has stays."""
    folder.mkdir(parents=True, exist_ok=True)
    for gpu in {gpu for gpu, _ in found}:
        path = folder / f"{name_of(gpu)}.json"
        before = parsed(path.read_text(), path.name).entries if path.exists() else ()
        rows = [
            Entry("cublaslt", lines, depth, "plain", "bf16", rows, text, version)
            for (own, version), products in sorted(found.items())
            if own == gpu
            for (lines, depth, rows), text in sorted(products.items())
        ]
        others = [entry for entry in before if entry.engine != "cublaslt"]
        path.write_text(text_of(Table(gpu, (*others, *rows))))
