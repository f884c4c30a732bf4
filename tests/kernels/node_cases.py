"""Kernels of rounds of nodes, for `test_compiled`."""

from typing import Any

import triton.language as tl

from services.common.kernels.accept import choose, scores
from services.common.kernels.argmax_token import top
from services.common.kernels.block_conv import kernel as convolving
from services.common.kernels.choose_nodes import kernel as choosing
from services.common.kernels.force_acceptance import kernel as force_acceptance
from services.common.kernels.nodes import kernel as nodes
from services.common.kernels.rank_candidates import kernel as ranking
from services.common.kernels.span_attention.tree import program as tree
from services.common.kernels.walk_candidates import kernel as walking

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
BFLOAT16 = {"hidden_ptr": "*bf16", "before_ptr": "*bf16", "after_ptr": "*bf16"}
CONVOLVED = {
    f"{name}_ptr": "*bf16" for name in ("rows", "delta", "base", "stream", "weight", "out", "normed")
} | {"eps": "fp32", "inverse_width": "fp32"}  # fmt: skip
WALKS: tuple[tuple[int, dict[str, Any], dict[str, str]], ...] = (
    (7, {"scale_ptr": None}, BFLOAT16),
    (7, {"scale_ptr": None, "CANDIDATES": 32, "PADDED": 32}, BFLOAT16),
    (15, {}, {"scale_ptr": "*fp32"}),
)
DRAWN: tuple[dict[str, Any], ...] = (
    {"map_ptr": None},
    {},
    {f"{name}_ptr": None for name in ("rows", "seed", "length", "temperature", "map")},
)
"""Rows with noise of all tokens, of those that a map names, and rows without."""
CODES = {"kv_ptr": "*i8", "exponents_ptr": "*i8"}
NODE_CASES: list[tuple[Any, dict[str, Any], dict[str, str]]] = [
    *(
        (
            tree.tree_kernel,
            {**HEADS, "BLOCK_SIZE": 16, "TILE": tile, "NODES": nodes, "BESIDE": min(nodes, 4), "NODE_TILE": 4 * nodes}
            | {"STEPS": 4 if nodes == 1 else 2, "SPLITS": 16, "PROGRAMS": programs, "PARTS": parts, "ALONE": not parts},
            types,
        )
        for tile, nodes, programs, parts, types in (
            (
                16,
                4,
                2,
                10,
                {},
            ),  # the first becomes code of a GPU by default: half the cost of codes
            (64, 4, 1, 3, CODES),
            (64, 16, 1, 0, CODES),
            (64, 4, 1, 0, {}),
            (64, 16, 1, 0, {}),
        )
    ),
    (
        tree.tree_kernel,
        {**HEADS, "BLOCK_SIZE": 16, "TILE": 64, "NODES": 1, "BESIDE": 1, "NODE_TILE": 16, "STEPS": 4, "SPLITS": 16}
        | {"PROGRAMS": 16, "PARTS": 16, "ALONE": False},
        {},
    ),
    (tree.merge_tree_kernel, {**HEADS, "PARTS": 3, "PROGRAMS": 1, "ROWS": 4}, {}),
    *(
        (
            nodes.read_nodes_kernel,
            {"BLOCK_SIZE": 16, "WIDTH": width, "WIDTH_PAD": padded, "DOUBLINGS": padded.bit_length() - 1, "PDL": True},
            {},
        )
        for width, padded in ((16, 16), (63, 64))
    ),
    *(
        (nodes.keep_path_kernel, {"WIDTH": 16, "CHUNK": 1024, "PDL": True}, {"cache_ptr": kind, "slots_ptr": "*i64"})
        for kind in ("*bf16", "*i8")
    ),
    (
        force_acceptance.force_nodes_kernel,
        {"WIDTH": 16, "WIDTH_PAD": 16, "PDL": True},
        {"logits_ptr": "*bf16", "lines_ptr": "*i32", "parents_ptr": "*i64", "edges_ptr": "*fp32"},
    ),
    *(
        (
            top.group_best_kernel,
            {"TILE": 4096, "GROUP": 256, "PDL": True, **absent},
            {"scores_ptr": "*bf16"},
        )
        for absent in DRAWN
    ),
    *(
        (
            top.groups_top_kernel,
            {"COUNT": 8, "COUNT_PAD": 8, "GROUP": 256, "GROUPS_PAD": 1024, "WHOLE": False, "PDL": True, **absent},
            {"scores_ptr": "*bf16", "keys_ptr": "*i64"},
        )
        for absent in DRAWN
    ),
    (top.row_top_kernel, {"COUNT": 8, "KEYS_PAD": 16, "PDL": True}, {"keys_ptr": "*i64"}),
    (
        force_acceptance.force_nodes_kernel,
        {"WIDTH": 16, "WIDTH_PAD": 16, "PDL": True},
        {"logits_ptr": "*bf16", "lines_ptr": "*i32", "parents_ptr": "*i64", "edges_ptr": "*fp32"},
    ),
    *(
        (
            top.groups_top_kernel,
            {"COUNT": 16, "COUNT_PAD": 16, "GROUP": 256, "GROUPS_PAD": 1024, "WHOLE": True, "PDL": True, **absent},
            {"scores_ptr": "*bf16", "keys_ptr": "*i64"},
        )
        for absent in DRAWN
    ),
    (top.row_top_kernel, {"COUNT": 16, "KEYS_PAD": 32, "PDL": True}, {"keys_ptr": "*i64"}),
    *(
        (
            top.groups_top_kernel,
            {"COUNT": 32, "COUNT_PAD": 32, "GROUP": 256, "GROUPS_PAD": 1024, "WHOLE": True, "PDL": True, **absent},
            {"scores_ptr": "*bf16", "keys_ptr": "*i64"},
        )
        for absent in DRAWN
    ),
    (top.row_top_kernel, {"COUNT": 32, "KEYS_PAD": 64, "PDL": True}, {"keys_ptr": "*i64"}),
    *(
        (
            walking.walk_kernel,
            {"COUNT": count, "CANDIDATES": 16, "PADDED": 16, "RANK_PAD": 256, "PDL": True} | absent,
            {"ids_ptr": "*i64", "scores_ptr": "*fp32", "anchor_ptr": "*i64", "drafts_ptr": "*i64"} | coded,
        )
        for count, absent, coded in WALKS
    ),
    *(
        (
            ranking.rank_kernel,
            {"COUNT": 15, "CANDIDATES": 16, "PADDED": 16, "RANK_PAD": 32, "PDL": True} | absent,
            {"ids_ptr": "*i64", "anchor_ptr": "*i64", "sorted_ptr": "*i64", "before_ptr": "*bf16", "after_ptr": "*bf16"}
            | {"hidden_ptr": "*bf16"},
        )
        for absent in ({"scale_ptr": None, "trust_ptr": None}, {})
    ),
    *(
        (convolving._block_conv_kernel, {"TAPS": 2, "TILE": 1024, "WIDE": tl.float32, "PDL": True} | absent, CONVOLVED)
        for absent in ({"stream_ptr": None}, {})
    ),
    *(
        (
            convolving._conv_normed_kernel,
            {"TAPS": 2, "PADDED": padded, "WIDE": tl.float32, "OFFSET": 0.0, "PDL": True},
            CONVOLVED,
        )
        for padded in (4096, 8192)
    ),
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
