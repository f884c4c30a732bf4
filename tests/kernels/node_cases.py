"""Kernels of rounds of nodes, for `test_compiled`."""

from typing import Any

import triton.language as tl

from services.common.kernels.accept import choose, scores
from services.common.kernels.argmax_token import top
from services.common.kernels.choose_nodes import kernel as choosing
from services.common.kernels.nodes import kernel as nodes
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
            {**HEADS, "BLOCK_SIZE": 16, "TILE": tile, "NODES": nodes, "STEPS": 4 if nodes == 1 else 2}
            | {"NODE_TILE": 16, "SPLITS": 16, "PROGRAMS": programs, "PARTS": parts},
            types,
        )
        for tile, nodes, programs, parts, types in ((64, 1, 16, 16, {}), (64, 4, 1, 3, CODES), (16, 4, 2, 10, {}))
    ),
    (tree.merge_tree_kernel, {**HEADS, "PARTS": 3, "PROGRAMS": 1, "ROWS": 4}, {}),
    *(
        (nodes.read_nodes_kernel, {"BLOCK_SIZE": 16, "WIDTH": width, "WIDTH_PAD": padded, "PDL": True}, {})
        for width, padded in ((16, 16), (63, 64))
    ),
    *(
        (nodes.keep_path_kernel, {"WIDTH": 16, "CHUNK": 1024, "PDL": True}, {"cache_ptr": kind, "slots_ptr": "*i64"})
        for kind in ("*bf16", "*i8")
    ),
    (top.tile_top_kernel, {"COUNT": 8, "TILE": 4096, "PDL": True}, {"scores_ptr": "*bf16", "keys_ptr": "*i64"}),
    (top.row_top_kernel, {"COUNT": 8, "KEYS_PAD": 512, "PDL": True}, {"keys_ptr": "*i64"}),
    *(
        (
            choosing.choose_nodes_kernel,
            {"COUNT": 15, "ROWS_PAD": 16, "POSITIONS": 15, "BEFORES": befores, "CANDIDATES": 8, "PADDED": 8}
            | {"PDL": True},
            {"tokens_ptr": "*i64"},
        )
        for befores in (1, 8)
    ),
    (
        scores.score_kernel,
        {"WIDTH": 16, "DRAFTS": 15, "DRAFTS_PAD": 16, "TILE": 256, "lines_ptr": None, "offsets_ptr": None},
        {},
    ),
    (choose.best_kernel, {"WIDTH": 16, "TILE": 256, "offsets_ptr": None}, {"tokens_ptr": "*i32"}),
    *(
        (
            choose.commit_kernel,
            {"WIDTH": width, "WIDTH_PAD": padded, "TILES_PAD": 16, "STOPS_PAD": 8, "PDL": True}
            | {"firsts_ptr": None, "takes_ptr": None},
            {"tokens_ptr": "*i64"},
        )
        for width, padded in ((16, 16), (63, 64))
    ),
]
