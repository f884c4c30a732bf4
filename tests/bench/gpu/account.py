"""What the parts of a verify or a pack take on a GPU, from its kernels in order, beside the least that each can take.

The least is what its bytes take at the rate of a read, or its products at the best rate that any of them was measured
to have, whichever is more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tests.bench.gpu.kernels_added import Added
from tests.support.tiny_checkpoints import TinyShape

READ_BYTES_S, FLOPS_S = 4.37e12, 770e12
"""Of an H200: what a sum over random numbers reads, and qkv of 4,096 rows by the library before its limit of power."""
LAYER = ("qkv", "o", "gate and up", "down")
BEHIND = "head and context"
PARTS = (*LAYER, "attention", BEHIND, "choice", "other")
_PRODUCT = re.compile(r"^product|nvjet|gemm|cutlass|xmma|linear_kernel", re.IGNORECASE)
_ATTENTION = re.compile(r"attend|merge_kernel|store_qkv|combine")
_CHOICE = re.compile(r"^(commit|greedy|best|force|score|gather|told|row_mass|tile_mass)_kernel")
_CONTEXT = re.compile(r"store_context")
Row = dict[str, Any]


def parts_of(kernels: Sequence[Added], layers: int) -> dict[str, float]:
    """Return microseconds by part: what ends a product is the product's, what a layer does to heads is attention's.

    Layers have four products each. Those behind them are of the head and of the draft context, in any order.
    """
    found, products, last = dict.fromkeys(PARTS, 0.0), 0, "other"
    for kernel in kernels:
        product = bool(_PRODUCT.search(kernel.name))
        products += product
        behind = products > 4 * layers or (products == 4 * layers and bool(_CHOICE.search(kernel.name)))
        if product:
            last = BEHIND if behind else LAYER[(products - 1) % 4]
        found[last if product else _part(kernel.name, last, behind)] += kernel.added
    return found


def _part(name: str, last: str, behind: bool) -> str:
    if _CONTEXT.search(name):
        return BEHIND
    if behind:
        return "choice" if _CHOICE.search(name) else "other"
    return "attention" if _ATTENTION.search(name) else last


def floors(shape: TinyShape, sequences: int, width: int, context: int) -> dict[str, float]:
    """Return the least microseconds of each part of bfloat16; `context` positions lie before a sequence's rows."""
    rows, hidden, inner = sequences * width, shape.hidden, shape.inner
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    weights = {
        "qkv": (queries + 2 * keys, hidden), "o": (hidden, queries), "gate and up": (2 * inner, hidden),
        "down": (hidden, inner),
    }  # fmt: skip
    found = {name: shape.layers * product_floor(rows, *sizes) for name, sizes in weights.items()}
    read = 4 * sequences * (context + width) * keys
    flops = 4 * rows * (context + width / 2) * queries
    found["attention"] = shape.layers * max(read / READ_BYTES_S, flops / FLOPS_S) * 1e6
    head = product_floor(rows, shape.vocab, hidden) if context else 0.0
    taps = product_floor(rows, hidden, len(shape.taps) * hidden)
    found[BEHIND] = head + taps + product_floor(rows, 2 * keys * shape.draft_layers, hidden)
    return found


def product_floor(rows: int, lines: int, depth: int) -> float:
    """Return the least microseconds of a product: its weight and rows are read once, its results written once."""
    moved = 2 * (lines * depth + rows * (lines + depth))
    return max(moved / READ_BYTES_S, 2 * rows * lines * depth / FLOPS_S) * 1e6


def table(rows: Sequence[Row]) -> str:
    """Return Markdown: a line for each part, a pair of columns for each step, measured and at least."""
    names = [row["step"] for row in rows]
    lines = [["us", *(f"{name}; least" for name in names)], ["---"] * (1 + len(rows))]
    for part in PARTS:
        cells = [(row["parts"].get(part, 0.0), row["floors"].get(part, 0.0)) for row in rows]
        lines.append([part, *(f"{took:,.0f}; {least:,.0f}" if least else f"{took:,.0f}" for took, least in cells)])
    wholes = [(sum(row["parts"].values()), sum(row["floors"].values())) for row in rows]
    lines.append(["all", *(f"{took:,.0f}; {least:,.0f}, {took / least:.2f}" for took, least in wholes)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
