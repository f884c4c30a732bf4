"""The bench of drafts in eight bits: a draft is the same among more, and a search begins with the table's cut."""

from pathlib import Path

import pytest
import torch

from services.common.kernels.linear import reference, tiling
from services.common.kernels.linear.weight import Weight
from tests.bench.gpu.int8 import drafts
from tests.bench.gpu.int8.candidates import candidates, in_cuda, products
from tests.bench.gpu.shapes import QWEN3_4B, TINY

ROWS = (1, 16, 17, 64, 128, 256, 512)


def test_drafts_in_eight_bits_are_the_same_among_more(tmp_path: Path) -> None:
    rows = drafts.draft_rows(TINY, (1, 2), 40, "cpu", torch.float32, tmp_path)
    assert [row["draft"] for row in rows] == ["1 x 16 at 40", "2 x 16 at 40"]
    assert all(row["differ_from_more_rows"] == 0 for row in rows)


def test_drafts_that_depend_on_their_company_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoilt(rows_RD: torch.Tensor, head: Weight) -> torch.Tensor:
        return reference.linear(rows_RD, head).argmax(-1) + (len(rows_RD) > 15)

    monkeypatch.setattr("services.common.model.drafters.heads.argmax_of_product", spoilt)
    rows = drafts.draft_rows(TINY, (1, 2), 40, "cpu", torch.float32, tmp_path)
    assert rows[0]["differ_from_more_rows"] > 0


def test_a_search_begins_with_the_cut_of_the_table() -> None:
    for subject in products(QWEN3_4B):
        for rows in ROWS:
            chosen = tiling.int8_cut(subject.outputs, rows)
            assert candidates(subject, rows, searched=False) == (chosen,)
            found = candidates(subject, rows, searched=True)
            assert len(found) > 1 and found[0] == chosen


def test_a_search_times_tilings_in_cuda_that_end_as_the_product_does() -> None:
    for subject in products(QWEN3_4B):
        assert not in_cuda(subject, 64)
        found = [cut for rows in (65, 128, 512, 2048) for cut in in_cuda(subject, rows)]
        assert len({cut.kind for cut in found}) == 1
        assert all(subject.depth % (cut.subs * 128) == 0 for cut in found)
