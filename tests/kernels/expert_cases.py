"""Kernels of a mixture of experts as `test_compiled.py` compiles them: function, constants, and types of arguments."""

from dataclasses import replace
from typing import Any

from services.common.kernels.experts import program
from services.common.kernels.experts.tiling import tiling

_WORDS = {
    "at_ptr": "*i64",
    "uses_ptr": "*i32",
    "ids_ptr": "*i32",
    "order_ptr": "*i32",
    "tiles_ptr": "*i32",
    "count_ptr": "*i32",
}
_GATES = {"gates_ptr": "*bf16", "live_ptr": "*i1", "scale_ptr": "*bf16"}
_SOFTMAX: dict[str, Any] = {"bias_ptr": None, "scale_ptr": None, "CAP": 0.0, "FACTOR": 1.0}
_SIGMOIDS: dict[str, Any] = {"scale_ptr": None, "CAP": 30.0, "FACTOR": 2.5}
_SCALED: dict[str, Any] = {"bias_ptr": None, "CAP": 0.0, "FACTOR": 1.0}
_SHARED = {"shared_ptr": "*bf16", "gate_ptr": "*bf16", "parts_ptr": "*bf16"}
_CUTS = [tiling(pairs, 128) for pairs in (8, 4096, 8192, 32768)]
_CUTS.append(replace(_CUTS[-1], more=0))
_CODED = [tiling(pairs, 128, coded=True) for pairs in (8, 4096, 8192, 32768)]
_CODES = {"weight_ptr": "*i32", "scales_ptr": "*i32"}
EXPERT_CASES: list[tuple[Any, dict[str, Any], dict[str, str]]] = [
    *(
        (
            program.route_kernel,
            {"COUNT": count, "COUNT_PAD": padded, "TOP_K": 10, "TOP_PAD": 16, "RENORM": renorm, "PDL": True, **more},
            _WORDS | _GATES,
        )
        for count, padded, renorm, more in (
            (128, 128, True, _SOFTMAX),
            (512, 512, False, {"live_ptr": None, **_SOFTMAX}),
            (256, 256, True, _SIGMOIDS),
        )
    ),
    *(
        (
            program.route_few_kernel,
            {
                "COUNT": count, "COUNT_PAD": padded, "TOP_K": 8, "TOP_PAD": 8, "RENORM": True, "ROWS": rows,
                "TILE": 16, "RANKS": ranks, "PDL": True, **more,
            },
            _WORDS | _GATES,
        )
        for count, padded, rows, ranks, more in (
            (128, 128, 2, 8, {"live_ptr": None, **_SOFTMAX}),
            (256, 256, 1, 9, _SIGMOIDS),
            (512, 512, 16, 9, _SOFTMAX),
            (256, 256, 16, 9, _SIGMOIDS),
            (128, 128, 2, 8, _SCALED),
        )
    ),
    *(
        (
            program.sort_kernel,
            {"CHUNK": chunk, "PLACES": places, "PDL": True, "uses_ptr": None},
            _WORDS,
        )
        for chunk, places in ((16, 16), (8192, 160))
    ),
    *(
        (
            program.expert_kernel,
            {
                "RANKS": 8, "ROWS": cut.rows, "MORE": cut.more, "BAND": cut.band,
                "DEPTH": 128 if cut in _CODED else cut.depth, "EVEN": even,
                "GATED": gated, "GELU": gated and not even,
                "KNOWN": int(gated and even and cut.rows == 16), "SOON": even and not gated, "PDL": True,
                **({} if gated else {"squares_ptr": None, "at_ptr": None}),
                **({"SHORT": even} if cut in _CODED else {"SHORT": False, "scales_ptr": None}),
            },
            _WORDS | (_CODES if cut in _CODED else {}),
        )
        for cut in (*_CUTS, *_CODED)
        for even, gated in ((True, True), (False, True), (cut.rows > 16, False), (cut.rows == 16, False))
    ),
    *(
        (
            program.combine_kernel,
            {"COUNT": 128, "TOP_K": 8, "RANKS": 9, "WIDTH_PAD": 2048, "OFFSET": offset, "PDL": True, **more},
            _WORDS | _SHARED,
        )
        for offset, more in ((0.0, {"shared_ptr": None, "gate_ptr": None}), (1.0, {}), (0.0, {"gate_ptr": None}))
    ),
]  # fmt: skip
