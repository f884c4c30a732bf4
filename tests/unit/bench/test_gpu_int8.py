"""The bench of drafts in eight bits: what it compares is equal, and a wrong bit would be told."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from services.common.kernels.linear import int8_tiling
from services.common.kernels.linear.int8_weight import widened
from services.common.model.weights import LayerWeights
from tests.bench.gpu.int8 import drafts
from tests.bench.gpu.int8.candidates import candidates, products
from tests.bench.gpu.shapes import QWEN3_4B, TINY

ROWS = (1, 16, 17, 64, 128, 256, 512)


def test_drafts_in_eight_bits_are_those_by_the_same_wide_numbers(tmp_path: Path) -> None:
    rows = drafts.draft_rows(TINY, (1, 2), 40, "cpu", torch.float32, tmp_path)
    assert [row["draft"] for row in rows] == ["1 x 16 at 40", "2 x 16 at 40"]
    assert all(row["differ_from_wide_numbers"] == row["differ_from_more_rows"] == 0 for row in rows)


def test_other_numbers_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide_layer = drafts.wide_layer

    def doubled(layer: LayerWeights) -> LayerWeights:
        made = wide_layer(layer)
        return replace(made, ffn=replace(made.ffn, down_DF=3.0 * widened(made.ffn.down_DF)))

    monkeypatch.setattr(drafts, "wide_layer", doubled)
    rows = drafts.draft_rows(TINY, (2,), 40, "cpu", torch.float32, tmp_path)
    assert rows[0]["differ_from_wide_numbers"] > 0


def test_a_search_begins_with_the_cut_of_the_table() -> None:
    for subject in products(QWEN3_4B):
        for rows in ROWS:
            chosen = int8_tiling.int8_cut(subject.outputs, subject.depth, rows)
            found = candidates(subject, rows, searched=True)
            assert len(found) > 1
            assert (chosen is None) == (rows > int8_tiling.MOST_ROWS)
            assert chosen is None or (found[0] == chosen and candidates(subject, rows, searched=False) == (chosen,))
