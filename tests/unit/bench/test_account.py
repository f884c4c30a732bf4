"""The account of a step: every kernel belongs to one part, and each part has the least that it can take."""

from __future__ import annotations

import pytest

from tests.bench.gpu.account import FLOPS_S, PARTS, READ_BYTES_S, floors, parts_of, product_floor, table
from tests.bench.gpu.kernels_added import Added
from tests.bench.gpu.shapes import QWEN3_8B, layer_elements

LAYER = ["product", "_store_qkv_kernel", "attend_tiles", "merge_kernel", "nvjet_tst_128x256", "_begin_norm_kernel",
         "product", "sm90_xmma_gemm", "_begin_norm_kernel"]  # fmt: skip
VERIFY = ["_embedding_kernel", *LAYER * 2, "product", "greedy_kernel", "commit_kernel", "nvjet_a", "product",
          "_store_context_kernel", "_publish_kernel"]  # fmt: skip


def _ran(names: list[str]) -> list[Added]:
    return [Added(name, 1.0, 1.0) for name in names]


def test_every_kernel_of_a_verify_belongs_to_one_part() -> None:
    assert parts_of(_ran(VERIFY), layers=2) == {
        "qkv": 2, "o": 4, "gate and up": 2, "down": 4, "attention": 6, "head and context": 4, "choice": 2, "other": 2,
    }  # fmt: skip


def test_what_gates_behind_a_product_of_the_library_is_the_products() -> None:
    names = ["nvjet_a", "attend_alone", "product", "nvjet_b", "_swiglu_kernel", "nvjet_c"]
    assert parts_of(_ran(names), layers=1)["gate and up"] == 2


def test_the_last_two_products_of_a_pack_write_the_draft_context() -> None:
    """Nothing is chosen behind it."""
    found = parts_of(_ran([*LAYER, "nvjet_a", "product", "_store_context_kernel"]), layers=1)
    assert (found["head and context"], found["down"]) == (3, 2)


@pytest.mark.parametrize(("rows", "by_bytes"), [(16, True), (128, True), (512, False), (4096, False)])
def test_a_product_takes_its_bytes_or_its_arithmetic(rows: int, by_bytes: bool) -> None:
    moved, flops = 2 * (24_576 * 4096 + rows * (24_576 + 4096)), 2 * rows * 24_576 * 4096
    assert product_floor(rows, 24_576, 4096) == pytest.approx(
        1e6 * (moved / READ_BYTES_S if by_bytes else flops / FLOPS_S)
    )


def test_the_least_of_a_layer_s_products_is_what_reads_them_once() -> None:
    least = floors(QWEN3_8B, 1, 1, 512)
    layers = sum(least[name] for name in ("qkv", "o", "gate and up", "down"))
    assert layers == pytest.approx(36 * 2 * layer_elements(QWEN3_8B) / READ_BYTES_S * 1e6, rel=0.01)


def test_a_table_has_a_line_for_each_part_and_the_whole() -> None:
    parts = parts_of(_ran(VERIFY), layers=2)
    told = table([{"step": "8x16", "parts": parts, "floors": {"qkv": 1.0, "o": 1.0}}])
    assert told.splitlines()[0] == "| us | 8x16; least |"
    assert [line.split(" | ")[0].strip("| ") for line in told.splitlines()[2:]] == [*PARTS, "all"]
    assert told.splitlines()[-1] == "| all | 26; 2, 13.00 |"
