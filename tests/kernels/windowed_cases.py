"""Kernels of models with windows as `test_compiled.py` compiles them: function, constants, and types of arguments."""

from typing import Any

import triton.language as tl

from services.common.kernels.cap_logits import kernel as cap_logits
from services.common.kernels.experts import program
from services.common.kernels.head_gates import kernel as head_gates
from services.common.kernels.sandwich import kernel as sandwich
from services.common.kernels.span_attention import merge
from services.common.kernels.span_attention import program as attention
from services.common.kernels.store_qkv import kernel as store_qkv
from services.common.kernels.swiglu import kernel as swiglu

_NORMS = dict.fromkeys(
    ("fed_ptr", "dense_ptr", "parts_ptr", "mixed_norm_ptr", "dense_norm_ptr", "own_norm_ptr", "next_norm_ptr",
     "scale_ptr"), "*bf16"
)  # fmt: skip
_HEADS: dict[str, Any] = {"TOKENS": 64, "WIDE": tl.float32, "KV_HEADS": 2, "PDL": True}
_SPAN: dict[str, Any] = {"HAS_BLOCK": False, "CAUSAL": True, "BLOCK_SIZE": 16}
_WINDOW: dict[str, Any] = {"WINDOW": 1024, "SIZE": 256, "SIZE_PAD": 256, "GROUP": 2}
_WIDEST: dict[str, Any] = {"WINDOW": 0, "SIZE": 512, "SIZE_PAD": 512, "GROUP": 8, "TOKENS": 32}
WINDOWED_CASES: list[tuple[Any, dict[str, Any], dict[str, str]]] = [
    *(
        (
            sandwich._add_normed_kernel,
            {"WIDTH_PAD": 4096, "OFFSET": offset, "PDL": True, **scaled},
            _NORMS,
        )
        for offset, scaled in ((0.0, {}), (1.0, {"scale_ptr": None}))
    ),
    (
        program.combine_beside_kernel,
        {"COUNT": 128, "TOP_K": 8, "WIDTH_PAD": 4096, "OFFSET": 0.0, "PDL": True},
        _NORMS | {"ids_ptr": "*i32"},
    ),
    *(
        (
            head_gates._gate_kernel,
            {"SIZE": 128, "TILE": 1024, "WIDE": tl.float32, "PDL": True, **squares},
            {"gates_ptr": "*bf16"},
        )
        for squares in ({}, {"squares_ptr": None})
    ),
    (cap_logits._bound_kernel, {"CAP": 30.0, "TILE": 2048, "WIDE": tl.float32, "PDL": True}, {"logits_ptr": "*bf16"}),
    (swiglu._swiglu_kernel, {"TILE": 1024, "WIDE": tl.float32, "GELU": True, "PDL": True}, {}),
    (
        store_qkv._store_qkv_kernel,
        {
            "QUERIES": 16, "KV_HEADS": 2, "SIZE": 512, "HALF_PAD": 256, "WIDE": tl.float32, "GROUP": 8, "OFFSET": 0.0,
            "V_NORM": True, "PDL": True, "bias_ptr": None,
        },
        {},
    ),
    *(
        (
            attention.attend_kernel,
            {**_HEADS, **_SPAN, **sizes, "TILE": tile, "WIDTH": width, "SPLITS": splits, "PROGRAMS": programs}
            | {"PARTS": programs},
            {},
        )
        for sizes, tile, width, splits, programs in (
            (_WIDEST, 16, 1, 16, 16),
            (_WIDEST, 32, 2048, 16, 1),
            (_WINDOW, 32, 16, 18, 18),
            (_WINDOW, 64, 2048, 18, 1),
        )
    ),
    *(
        (merge.merge_kernel, {**_HEADS, **sizes, "HAS_BLOCK": False, "ROWS": 1, "WIDTH": 16}
         | {"SPLITS": splits, "PROGRAMS": splits, "PARTS": splits}, {"partial_ptr": "*fp32"})
        for sizes, splits in ((_WIDEST, 16), (_WINDOW, 18))
    ),
]  # fmt: skip
