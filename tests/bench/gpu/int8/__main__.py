"""python -m tests.bench.gpu.int8: products and drafts in eight bits, checked and timed; one JSON line, then a table.

Exits with 1 where a bit differs from the exact sums, or a draft from the same one among more.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from services.common.kernels.linear.cublas import keep_order
from tests.bench.gpu.int8.candidates import compile_cuts, products
from tests.bench.gpu.int8.drafts import draft_rows
from tests.bench.gpu.int8.timed import product_rows, reference_row
from tests.bench.gpu.results import circumstances, tell
from tests.bench.gpu.shapes import SHAPES


def main() -> int:
    """Compiles, checks, times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["drafts", "products"], help="drafts, products")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="qwen3-4b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 8, 16, 64, 128, 256, 512])
    parser.add_argument("--buckets", type=int, nargs="*", default=[1, 8, 32], help="sequences of a draft")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--search", action="store_true", help="times other cuts than the table's too")
    parser.add_argument("--save", default="")
    chosen = parser.parse_args()
    shape, start = SHAPES[chosen.shape], time.perf_counter()
    dtype: torch.dtype = getattr(torch, chosen.dtype)
    rows: list[dict[str, Any]] = []
    if chosen.device == "cuda":
        keep_order()
    if chosen.device == "cuda" and "products" in chosen.parts:
        count = compile_cuts(shape, chosen.rows, chosen.search, chosen.device)
        rows.append({"compiled": count, "s": round(time.perf_counter() - start, 1)})
    if "drafts" in chosen.parts:
        with tempfile.TemporaryDirectory() as folder:
            rows += draft_rows(shape, chosen.buckets, chosen.context, chosen.device, dtype, Path(folder))
    for subject in products(shape) if "products" in chosen.parts else ():
        rows.append(reference_row(subject, [1, *chosen.rows, 17, 100], chosen.device, dtype))
        rows += product_rows(subject, chosen.rows, chosen.search, chosen.device, dtype)
    document = {
        "bench": "int8", **circumstances(chosen.shape, "tests.bench.gpu.int8"),
        "seconds": round(time.perf_counter() - start, 1), "rows": rows,
    }  # fmt: skip
    if chosen.save:
        Path(chosen.save).write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document))
    for row in rows:
        tell(row)
    print(f"seconds={document['seconds']}")
    wrong = ("differ", "differ_from_more_rows")
    return int(any(row.get(name) for row in rows for name in wrong))


if __name__ == "__main__":
    sys.exit(main())
