"""Rows of the JSON file, the gate's sums and the table that is printed last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.bench.gpu.clusters.tiling import TILINGS, WEIGHTS, Tiling, floor_us

Row = dict[str, Any]
GATE = {"o + down": (("o", "down"), 25.0), "gate_up": (("gate_up",), 27.0)}
"""Microseconds that products of 128 rows may take together, for the kernel to be worth its upkeep."""
LIBRARY = "cuBLAS"
MODES = {False: "alone", True: "overlapped"}
"""A kernel that waits until the one before has drained, and one that starts its first loads before."""


def rows_of(shapes: Iterable[str], checked: Mapping[tuple[str, str], Row], times: Mapping[str, Row]) -> list[Row]:
    """Return a row for each shape: what each tiling moves, whether it has cuBLAS's bits, and its microseconds."""
    return [_row(shape, checked, times.get(shape, {})) for shape in shapes]


def gate(rows: Sequence[Row]) -> list[Row]:
    """Return the sums that decide, by each mode; None where a product has no time."""
    found: list[Row] = []
    for name, (shapes, bar) in GATE.items():
        for mode in MODES.values():
            own = [row["best"][mode]["us"] if row["best"] else None for row in rows if row["name"] in shapes]
            library = [row["cublas_us"] for row in rows if row["name"] in shapes]
            us, cublas_us = _sum(own, len(shapes)), _sum(library, len(shapes))
            passes = us is not None and us <= bar
            found.append({
                "products": name, "mode": mode, "us": us, "cublas_us": cublas_us, "bar_us": bar, "passes": passes,
            })  # fmt: skip
    return found


def table(rows: Sequence[Row]) -> str:
    """Return all tilings, then the best of each shape, then the gate."""
    lines = [f"{'product':<8} {'tiling':<22} {'alone':>7} {'overl.':>7}  MB in  us in  cache TB/s"]
    lines += [_tiling_line(row["name"], one) for row in rows for one in row["tilings"] if "alone" in one]
    lines += ["", f"{'product':<8} {'mode':<10} {'best':<22} {'us':>7} {'cuBLAS':>7} {'bytes':>6}  bits   MHz    W"]
    lines += [line for row in rows for line in _best_lines(row)]
    for one in gate(rows):
        verdict = "not measured" if one["us"] is None else "passes" if one["passes"] else "fails"
        lines.append(f"gate: {one['products']:<8} {one['mode']:<10} {_shown(one['us'])} us, cuBLAS "
                     f"{_shown(one['cublas_us'])}, bar {one['bar_us']}: {verdict}")  # fmt: skip
    return "\n".join(lines)


def _row(shape: str, checked: Mapping[tuple[str, str], Row], timed: Row) -> Row:
    outputs, depth = WEIGHTS[shape]
    micros = {(one["tiling"], one["overlapped"]): one["us"] for one in timed.get("micros", ())}
    tilings = [_candidate(shape, tiling, checked.get((shape, tiling.name), {}), micros) for tiling in TILINGS[shape]]
    raced = [one for one in tilings if "alone" in one]
    best = {mode: min(raced, key=lambda one: one[mode], default=None) for mode in MODES.values()}
    return {
        "name": shape, "outputs": outputs, "depth": depth, "rows": 128, "gpu_sharing": "none",
        "cublas_us": micros.get((LIBRARY, False)), "floor_us": round(floor_us(outputs, depth), 2),
        "best": {mode: {"tiling": one["tiling"], "us": one[mode]} for mode, one in best.items() if one is not None},
        "clock_mhz": timed.get("clock_mhz"), "watts": timed.get("watts"), "tilings": tilings,
    }  # fmt: skip


def _candidate(shape: str, tiling: Tiling, checked: Row, micros: Mapping[tuple[str, bool], float]) -> Row:
    outputs, depth = WEIGHTS[shape]
    found: Row = {
        "tiling": tiling.name, "status": checked.get("status", "not run"), "ctas": tiling.ctas(outputs),
        "clusters_at_once": checked.get("clusters_at_once"), "ingest_mb": round(tiling.ingest_bytes(depth) / 1e6, 3),
        "ingest_us": round(tiling.ingest_us(depth), 1), "cache_mb": round(tiling.cache_bytes(outputs, depth) / 1e6, 1),
    }  # fmt: skip
    return found | {mode: micros[tiling.name, key] for key, mode in MODES.items() if (tiling.name, key) in micros}


def _tiling_line(shape: str, one: Row) -> str:
    moved = f"{one['ingest_mb']:>6.2f} {one['ingest_us']:>6.1f}  {one['cache_mb'] / one['alone']:>6.1f}"
    return f"{shape:<8} {one['tiling']:<22} {one['alone']:>7.2f} {one['overlapped']:>7.2f} {moved}"


def _best_lines(row: Row) -> list[str]:
    statuses = [one["status"] for one in row["tilings"]]
    bits = f"{statuses.count('equal')}/{len(statuses)}"
    beside = f"{_shown(row['cublas_us']):>7} {row['floor_us']:>6.2f}  {bits:<5} {row['clock_mhz']} {row['watts']}"
    if not row["best"]:
        return [f"{row['name']:<8} {'-':<10} {'none':<22} {'-':>7} {beside}"]
    return [f"{row['name']:<8} {mode:<10} {one['tiling']:<22} {one['us']:>7.2f} {beside}"
            for mode, one in row["best"].items()]  # fmt: skip


def _sum(numbers: Sequence[float | None], count: int) -> float | None:
    known = [number for number in numbers if number is not None]
    return round(sum(known), 2) if len(known) == count else None


def _shown(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"
