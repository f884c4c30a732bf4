"""Every kernel compiles for an H100 or H200, which needs no GPU; the interpreter accepts more than the compiler."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

from services.common.kernels.accept import choices, choose, greedy, logprob, passes, scores, settle, threshold
from services.common.kernels.argmax_token import kernel as argmax_token
from services.common.kernels.embedding import kernel as embedding
from services.common.kernels.force_acceptance import kernel as force_acceptance
from services.common.kernels.linear import ends, int8_rows, packed_widen
from services.common.kernels.linear import program as linear
from services.common.kernels.mailbox import kernel as publish_slots
from services.common.kernels.mailbox import kernel as read_mailbox
from services.common.kernels.mailbox import kernel as write_mailbox
from services.common.kernels.prepare_span import kernel as prepare_rows
from services.common.kernels.rms_norm import kernel as rms_norm
from services.common.kernels.rope import kernel as rope
from services.common.kernels.span_attention import merge, placement
from services.common.kernels.span_attention import program as attention
from services.common.kernels.store_context import kernel as store_context
from services.common.kernels.store_qkv import kernel as store_qkv
from services.common.kernels.swiglu import kernel as swiglu
from services.common.kernels.wait_flag import kernel as wait_flag
from services.common.kernels.wait_masks import kernel as wait_masks
from tests.kernels.argument_types import type_of
from tests.kernels.delta_cases import DELTA_CASES
from tests.kernels.expert_cases import EXPERT_CASES
from tests.kernels.node_cases import DRAWN, NODE_CASES
from tests.kernels.windowed_cases import WINDOWED_CASES

TARGET = GPUTarget("cuda", 90, 32)
HEADS = {
    "GROUP": 4,
    "KV_HEADS": 2,
    "SIZE": 64,
    "SIZE_PAD": 64,
    "WIDTH": 4,
    "PARTS": 16,
    "TOKENS": 64,
    "WINDOW": 0,
    "WIDE": tl.float32,
    "PDL": True,
}
WIDE_NUMBERS: dict[str, Any] = {"scales_ptr": None, "x_scales_ptr": None}
NO_SQUARES: tuple[dict[str, Any], ...] = ({"squares_ptr": None}, {})
"""Rows that are divided by their norm already, and rows that are not."""
ROW = {"WIDTH": 3, "PDL": True}
NO_TREE_ROWS: dict[str, Any] = {"depths_ptr": None, "ancestors_ptr": None}
NO_PIECES: dict[str, Any] = {"lines_ptr": None, "offsets_ptr": None}
PIECES = {"lines_ptr": "*i32"}
HEAD_FLAGS: tuple[dict[str, Any], ...] = (
    {"bias_ptr": None, "OFFSET": 0.0},
    {"weight_ptr": None, "OFFSET": 0.0},
    {"bias_ptr": None, "weight_ptr": None, "OFFSET": 0.0},
    {"OFFSET": 1.0},
)
"""Qwen3's, Qwen2's, Llama's, and all at once."""
STORED = {
    "QUERIES": 8,
    "KV_HEADS": 2,
    "SIZE": 64,
    "HALF_PAD": 32,
    "WIDE": tl.float32,
    "GROUP": 8,
    "V_NORM": False,
    "PDL": True,
}
CODES = {"kv_ptr": "*i8", "exponents_ptr": "*i8"}
"""Keys and values of eight bits."""
CASES: list[tuple[Any, dict[str, Any], dict[str, str]]] = [
    *(
        (rms_norm._rms_norm_kernel, {"WIDTH_PAD": 512, "WIDE": tl.float32, "OFFSET": offset, "PDL": True}, {})
        for offset in (0.0, 1.0)
    ),
    (rms_norm._begin_norm_kernel, {"WIDTH_PAD": 512, "OFFSET": 0.0, "PDL": True}, {}),
    *(
        (
            swiglu._swiglu_kernel,
            {"TILE": 256, "WIDE": tl.float32, "GELU": False, "PDL": True, **squares},
            {},
        )
        for squares in NO_SQUARES
    ),
    *(
        (
            embedding._embedding_kernel,
            {"WIDTH_PAD": 512, "NORMS_PAD": 16, "SCALE": scale, "WIDE": tl.float32, "PDL": True},
            {"squares_ptr": "*i64", "live_ptr": "*i1"},
        )
        for scale in (1.0, 53.0)
    ),
    (
        store_context._store_context_kernel,
        {"HEADS": 2, "SIZE": 64, "HALF_PAD": 32, "WIDE": tl.float32, "GROUP": 8},
        {},
    ),
    *(
        (
            store_qkv._store_qkv_kernel,
            {**STORED, **flags},
            {},
        )
        for flags in HEAD_FLAGS
    ),
    (
        store_qkv._store_qkv_kernel,
        {**STORED, "OFFSET": 0.0},
        CODES,
    ),
    *(
        (
            attention.attend_kernel,
            {**HEADS, "BLOCK_SIZE": 16, "HAS_BLOCK": False, "CAUSAL": True, "TILE": tile}
            | {"SPLITS": 16, "PROGRAMS": programs},
            CODES,
        )
        for tile, programs in ((64, 1), (16, 16), (64, 2))
    ),
    *(
        (
            attention.attend_kernel,
            {
                **HEADS,
                "WINDOW": window,
                "BLOCK_SIZE": 16,
                "HAS_BLOCK": block,
                "CAUSAL": causal,
                "TILE": 16,
                "SPLITS": 16,
                "PROGRAMS": programs,
            },
            {},
        )
        for block, causal, window, programs in (
            (False, True, 0, 1),
            (False, True, 0, 16),
            (True, False, 0, 16),
            (False, True, 64, 16),
            (True, False, 64, 1),
            (False, True, 0, 2),
            (True, False, 64, 2),
            (True, False, 2048, 16),
            (True, True, 2048, 16),
        )
    ),
    *(
        (
            prepare_rows._prepare_kernel,
            {
                "HAS_DRAFTS": drafts,
                "BLOCK_SIZE": 16,
                "WIDTH": 3,
                "WIDTH_PAD": 4,
                "COLUMNS": 256,
                "OTHERS": 128,
                "PDL": True,
                **absent,
            },
            {"ranks_ptr": "*i32", **PIECES} if drafts else {},
        )
        for drafts, absent in (
            (True, {"depths_ptr": None, **NO_PIECES}),
            (True, NO_PIECES),
            (True, {"depths_ptr": None}),
            (False, {"ranks_ptr": None, "depths_ptr": None, **NO_PIECES}),
        )
    ),
    (wait_flag._wait_kernel, {"WORD": 1, "GENERATIONS": 8, "LIMIT_NS": 4 * 10**9}, {"flags_ptr": "*i64"}),
    (
        wait_masks._wait_kernel,
        {"ROWS": 8, "LIMIT_NS": 2 * 10**7},
        {"rows_ptr": "*i32", "ready_ptr": "*i32", "masked_ptr": "*u8"},
    ),
    *(
        (
            write_mailbox._post_drafts_kernel,
            {"WIDTH": 3, "WIDTH_PAD": 4, "PDL": True, **absent},
            {"tokens_ptr": "*i32"},
        )
        for absent in ({"parents_ptr": None, "mailbox_parents_ptr": None}, {})
    ),
    (force_acceptance.force_kernel, {**ROW, "WIDTH_PAD": 4}, {"logits_ptr": "*bf16", "lines_ptr": "*i32"}),
    (publish_slots._publish_kernel, {"TILE": 256, "PDL": True}, {}),
    (placement._place_kernel, {"HAS_VALID": True, "BLOCK_SIZE": 16, "TILE": 16}, {}),
    (
        placement._near_kernel,
        {"BLOCK_SIZE": 16, "TILE": 256},
        {"near_slots_ptr": "*i64", "places_ptr": "*i32", "near_table_ptr": "*i32"},
    ),
    (rope._table_kernel, {"HALF_PAD": 64, "PDL": True}, {}),
    *(
        (
            merge.merge_kernel,
            {**HEADS, "HAS_BLOCK": block, "WINDOW": window, "ROWS": 1, "PROGRAMS": programs},
            {"partial_ptr": "*fp32"},
        )
        for block, window, programs in ((False, 0, 16), (True, 64, 2))
    ),
    (read_mailbox._read_mailbox_kernel, {**ROW, "WIDTH_PAD": 4}, {"tokens_ptr": "*i32", "out_ptr": "*i64"}),
    *(
        (
            linear.linear_kernel,
            {
                "ROWS": rows,
                "BAND": 64,
                "DEPTH": 128,
                "EVEN": even,
                **NO_SQUARES[count],
                "GATED": gated,
                "ADDED": added,
                "GATES": gates,
                "OFFSET": offset,
                "PDL": True,
                **WIDE_NUMBERS,
            },
            {},
        )
        for rows, even, count, gated, added, gates, offset in (
            (16, True, 0, False, False, False, 0.0),
            (16, True, 0, False, True, False, 0.0),
            (16, True, 0, False, True, False, 1.0),
            (16, False, 1, True, False, False, 0.0),
            (64, True, 1, True, False, False, 0.0),
            (64, True, 1, False, False, False, 0.0),
            (16, True, 1, False, False, True, 0.0),
        )
    ),
    *(
        (ends._end_kernel, {"GATES": gates, "TILE": 1024, "WIDE": tl.float32, "PDL": True, **squares}, {})
        for gates, squares in ((False, {}), (True, {"squares_ptr": None}))
    ),
    *(
        (
            linear.linear_kernel,
            {
                "ROWS": rows,
                "BAND": band,
                "DEPTH": 128,
                "EVEN": even,
                **NO_SQUARES[count],
                "GATED": gated,
                "ADDED": added,
                "GATES": False,
                "OFFSET": 0.0,
                "PDL": True,
            },
            {"x_ptr": "*i8", "weight_ptr": "*i8"},
        )
        for rows, band, even, count, gated, added in (
            (16, 16, True, 0, False, True),
            (64, 64, False, 1, True, False),
        )
    ),
    *(
        (
            packed_widen._widen_kernel,
            {"BITS": bits, "SHORT": short, "LINES": 64, "PDL": True},
            {"words_ptr": "*i32", "scales_ptr": kind, "wide_ptr": "*bf16"},
        )
        for bits, short, kind in ((4, False, "*i32"), (4, True, "*i32"), (8, True, "*fp32"))
    ),
    (int8_rows._quantise_kernel, {"DEPTH_PAD": 4096, "PDL": True}, {"rows_ptr": "*bf16", "whole_ptr": "*i8"}),
    *DELTA_CASES,
    *EXPERT_CASES,
    *NODE_CASES,
    *WINDOWED_CASES,
    *(
        (argmax_token._tile_kernel, {"TILE": 4096, "PDL": True} | own, {"scores_ptr": "*bf16", "tokens_ptr": "*i32"})
        for own in DRAWN
    ),
    (argmax_token._row_kernel, {"TILES_PAD": 64, "PDL": True}, {"tokens_ptr": "*i32", "best_ptr": "*i64"}),
    *(
        (
            scores.score_kernel,
            {"WIDTH": 3, "DRAFTS": drafts, "DRAFTS_PAD": padded, "TILE": 256, **NO_TREE_ROWS, **absent},
            PIECES,
        )
        for drafts, padded, absent in ((2, 4, NO_PIECES), (15, 16, {}))
    ),
    (settle.begin_kernel, {**ROW, "PEAKS_PAD": 32}, {}),
    *((settle.narrow_kernel, {**ROW, "TILES_PAD": 16, "LAST": last}, {}) for last in (False, True)),
    (passes.sum_kernel, {"TILE": 256, "CHUNK": 128, "SHARE": 2, "PDL": True}, {}),
    (passes.gather_kernel, {"TILE": 256, "KEPT": 32, "PDL": True}, {"found_ptr": "*i32"}),
    (
        threshold.floor_kernel,
        {**ROW, "TILE": 256, "TILES_PAD": 16, "KEPT": 32, "COLUMNS": 32},
        {"found_ptr": "*i32"},
    ),
    (logprob.tile_mass_kernel, {"TILE": 256}, {"logits_ptr": "*bf16"}),
    (logprob.row_mass_kernel, {"TILES_PAD": 16}, {}),
    *(
        (choose.best_kernel, {"WIDTH": 3, "TILE": 256, "depths_ptr": None, **absent}, {"tokens_ptr": "*i32"})
        for absent in ({"offsets_ptr": None}, {})
    ),
    *(
        (choices.peek_kernel, {"WIDTH": 3, "TILE": 256, **absent}, {"tokens_ptr": "*i32", "masked_ptr": "*u8"})
        for absent in ({"depths_ptr": None}, {})
    ),
    (
        choices.told_kernel,
        {"WIDTH": 3, "SHARES": 8, "LAST_BITS": 0x7FFFFFFF},
        {"tokens_ptr": "*i32", "masked_ptr": "*u8", "told_ptr": "*i64", "number_ptr": "*i64"},
    ),
    *(
        (greedy.greedy_kernel, {"TILE": 4096, "WIDE": wide, "PDL": True}, {"logits_ptr": kind, "tokens_ptr": "*i32"})
        for wide, kind in ((False, "*bf16"), (True, "*fp32"))
    ),
    *(
        (
            choose.commit_kernel,
            {"WIDTH": 3, "WIDTH_PAD": 4, "TILES_PAD": 16, "STOPS_PAD": 8, "PDL": True}
            | {**NO_TREE_ROWS, "parents_ptr": None, "path_ptr": None, **absent},
            {"tokens_ptr": "*i64"},
        )
        for absent in ({"firsts_ptr": None, "takes_ptr": None}, {})
    ),
]


FIRST = {case[0].__name__: place for place, case in reversed([*enumerate(CASES)])}
"""The place of each kernel's first case."""


@pytest.mark.parametrize("place", range(len(CASES)), ids=[str(case[0].__name__) for case in CASES])
def test_kernel_compiles(place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool) -> None:
    """Every case is lowered to Triton's IR, which finds wrong types and shapes; one of each kernel or all are whole."""
    function, source = CASES[place][0], source_of(*CASES[place])
    if not full and place != FIRST[function.__name__]:
        assert function.__name__ in lowered(source)
        return
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    if not full:  # What the assembler takes it takes without its optimiser, too, and without LLVM's before it.
        monkeypatch.setenv("DISABLE_PTXAS_OPT", "1")
        monkeypatch.setenv("DISABLE_LLVM_OPT", "1")
    compiled = triton.compile(source, target=TARGET)
    assert compiled.asm["cubin"]
    assert compiled.metadata.shared <= 227 * 1024


def test_products_of_codes_add_up_in_the_order_of_bfloat16_numbers() -> None:
    """Where it sees that numbers were bytes, the compiler deals each 32 inputs to two instructions in turn."""
    found = 0
    for case in CASES:
        if case[2].get("kv_ptr") == "*i8" and case[1].get("TILE") == 16:
            dealt = [line for line in lowered(source_of(*case), "ttgir").splitlines() if "tt.dot " in line]
            assert all("kWidth = 2" in line for line in dealt), case
            found += len(dealt)
    assert found


def test_experts_of_codes_add_up_in_the_order_of_bfloat16_numbers() -> None:
    """Codes go from shared memory to the lanes that multiply them, in the places of numbers that were loaded so."""
    coded = [case for case in CASES if case[2].get("weight_ptr") == "*i32" and case[1]["EVEN"] and case[1]["GATED"]]
    assert len(coded) > 2
    for case in coded:
        text = lowered(source_of(*case), "ttgir").splitlines()
        products = [line for line in text if "warp_group_dot " in line]
        assert products and all("kWidth = 2" in line for line in products), case
        assert any("ttg.local_load" in line and "x32xi32" in line and "#linear" in line for line in text), case


def source_of(function: Any, constants: dict[str, Any], types: dict[str, str]) -> ASTSource:
    names = function.arg_names
    signature = {n: "constexpr" if n in constants else types.get(n, type_of(n)) for n in names}
    return ASTSource(
        fn=function, signature=signature, constexprs={(names.index(name),): value for name, value in constants.items()}
    )


def lowered(source: ASTSource, last: str = "ttir") -> str:
    """The IR that the compiler's passes leave, up to those named last.

    Raises:
        triton.CompilationError: the language does not allow what the kernel says.
    """
    backend, context = make_backend(TARGET), ir.context()
    options, metadata = backend.parse_options(dict(source.parse_options())), dict[str, Any]()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions = backend.get_codegen_implementation(options)
    module = source.make_ir(TARGET, options, functions, backend.get_module_map(), context)
    stages = dict[str, Callable[[Any, dict[str, Any]], Any]]()
    backend.add_stages(stages, options, source.language)
    for name, passes_of in stages.items():
        module = passes_of(module, metadata)
        if name == last:
            break
    return str(module)
