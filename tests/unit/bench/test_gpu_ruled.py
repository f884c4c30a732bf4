"""What the bench of the rule times, and the entries that it saves."""

from __future__ import annotations

import pytest

from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.persistent.rule import fits, ruled_cut
from services.common.kernels.linear.persistent.tiling import PersistentTiling
from services.common.kernels.tables import Table, parsed, text_of
from tests.bench.gpu.products.cases import layer_weights
from tests.bench.gpu.products.ruled import PRODUCTS, ROWS, cuts_of, entry_of
from tests.bench.gpu.shapes import QWEN3_8B, QWEN3_14B


class Product:
    """Stands for a product on a GPU."""

    lines, depth, kind, rows = 24_576, 4096, Kind.GATED, 128


def test_its_products_are_those_of_public_models() -> None:
    for shape in (QWEN3_8B, QWEN3_14B):
        named = {name: weight[:2] for name, weight in PRODUCTS[shape.hidden].items()}
        assert named == layer_weights(shape)


@pytest.mark.parametrize("rows", ROWS)
def test_the_rule_s_cut_comes_first_and_clusters_of_four_are_tried(rows: int) -> None:
    for products in PRODUCTS.values():
        for lines, depth, kind in products.values():
            found = cuts_of(lines, depth, kind, rows, 3)
            assert found[0] == ruled_cut(lines, depth, rows, kind)
            assert len(set(found)) == len(found) <= 5 and all(fits(cut, lines, depth) for cut in found)


def test_an_entry_is_what_a_table_holds() -> None:
    cut = PersistentTiling(128, 96, 1, 5, Kind.GATED, share=2, wide=True)
    found = [entry_of(Product(), each) for each in (cut, None)]  # type: ignore[arg-type]
    assert [entry.cut for entry in found] == [{"rows": 128, "band": 96, "subs": 1, "stages": 5, "share": 2}, None]
    assert parsed(text_of(Table("NVIDIA H200", tuple(found))), "own.json").entries == tuple(found)
