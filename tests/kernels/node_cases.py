"""Kernels of rounds of nodes, for `test_compiled`."""

from typing import Any

import triton.language as tl

from services.common.kernels.span_attention.tree import program as tree

HEADS: dict[str, Any] = {
    "WIDTH": 16,
    "GROUP": 4,
    "KV_HEADS": 8,
    "SIZE": 128,
    "SIZE_PAD": 128,
    "TOKENS": 64,
    "WIDE": tl.float32,
    "PDL": True,
}
CODES = {"kv_ptr": "*i8", "exponents_ptr": "*i8"}
NODE_CASES: list[tuple[Any, dict[str, Any], dict[str, str]]] = [
    *(
        (
            tree.tree_kernel,
            {**HEADS, "BLOCK_SIZE": 16, "TILE": tile, "NODE_TILE": 16, "SPLITS": 16}
            | {"PROGRAMS": programs, "PARTS": parts},
            types,
        )
        for tile, programs, parts, types in ((64, 16, 16, {}), (64, 1, 3, CODES), (16, 2, 10, {}))
    ),
    (tree.merge_tree_kernel, {**HEADS, "PARTS": 3, "PROGRAMS": 1, "ROWS": 4}, {}),
]
