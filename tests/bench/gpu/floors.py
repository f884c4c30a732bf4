"""The parts of steps and served rounds: products and K/V, single steps, the time in between, and a floor by bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.bench.gpu.shapes import draft_bytes, kv_bytes, verify_bytes
from tests.support.tiny_checkpoints import TinyShape

Row = dict[str, Any]


def against_products(steps: Sequence[Row], shape: TinyShape) -> list[Row]:
    """A row for each verify with as many rows as products of cuBLAS: its time against theirs and its K/V's bytes.

    The bytes take what the row `read` has measured.
    """
    products = {row["bucket"]: row["us"] for row in steps if row["step"] == "products"}
    bandwidth, rows = _bandwidth(steps), []
    for row in steps:
        if bandwidth and row["step"] == "verify" and (count := row["bucket"] * row["width"]) in products:
            kv = kv_bytes(shape, row["bucket"], row["context"]) / bandwidth * 1e6
            rows.append({
                "step": "against products",
                **{name: row[name] for name in ("bucket", "context", "width", "us")},
                "products_us": products[count],
                "kv_us": round(kv, 1),
                "ratio": round(row["us"] / (products[count] + kv), 3),
                "bar": 1.25,
            })  # fmt: skip
    return rows


def explain(rows: Sequence[Row], steps: Sequence[Row], shape: TinyShape) -> list[Row]:
    """Rows of rounds of one width with their floor, and with their parts where `steps` has that shape."""
    bandwidth = _bandwidth(steps)
    if bandwidth is None:
        return list(rows)
    return [row | _parts(row, steps, shape, bandwidth) if _of_one_width(row) else row for row in rows]


def _bandwidth(steps: Sequence[Row]) -> float | None:
    """Bytes per second of a read-only sum, where it was measured."""
    return next((float(row["tb_s"]) * 1e12 for row in steps if row["step"] == "read"), None)


def _of_one_width(row: Row) -> bool:
    return row.get("k") is not None and row.get("round_us") is not None


def _parts(row: Row, steps: Sequence[Row], shape: TinyShape, bandwidth: float) -> Row:
    rows, context, width = row["concurrency"], row["context"], (row["k"] or 0) + 1
    floor = verify_bytes(shape, rows, context) + (draft_bytes(shape, rows, context) if width > 1 else 0)
    parts: Row = {"floor_us": round(floor / bandwidth * 1e6, 1)}
    verify = _step(steps, "plain" if width == 1 else "verify", rows, context, width)
    draft = _step(steps, "draft", rows, context, 16) if width == 16 else None
    if verify is None or (width > 1 and draft is None):
        return parts
    handoff = row["round_us"] - verify - (draft or 0.0)
    return parts | {"verify_us": verify, "draft_us": draft, "handoff_us": round(handoff, 1)}


def _step(steps: Sequence[Row], name: str, rows: int, context: int, width: int) -> float | None:
    wanted = {"step": name, "bucket": rows, "context": context, "width": width}
    found = [row["us"] for row in steps if wanted.items() <= row.items()]
    return float(found[0]) if found else None
