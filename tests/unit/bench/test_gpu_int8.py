"""The bench of drafts in eight bits: a draft is the same among more, and a search begins with the table's cut."""

from pathlib import Path

import pytest
import torch

from services.common.kernels.argmax_token import Draws
from services.common.kernels.linear import reference, tiling
from services.common.kernels.linear.persistent.eight import eight_cut
from services.common.kernels.linear.persistent.rule import fits
from services.common.kernels.linear.weight import Weight
from tests.bench.gpu.int8 import drafts, ruled
from tests.bench.gpu.int8.candidates import candidates, in_cuda, products
from tests.bench.gpu.shapes import QWEN3_4B, TINY

ROWS = (1, 16, 17, 64, 128, 256, 512)


def test_drafts_in_eight_bits_are_the_same_among_more(tmp_path: Path) -> None:
    rows = drafts.draft_rows(TINY, (1, 2), 40, "cpu", torch.float32, tmp_path)
    assert [row["draft"] for row in rows] == ["1 x 16 at 40", "2 x 16 at 40"]
    assert all(row["differ_from_more_rows"] == 0 for row in rows)


def test_drafts_that_depend_on_their_company_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoilt(rows_RD: torch.Tensor, head: Weight, draws: Draws | None = None) -> torch.Tensor:
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


@pytest.mark.parametrize("rows", [256, 512, 2048])
def test_weights_that_no_table_has_are_timed_by_other_cuts_than_the_rules(rows: int) -> None:
    """The first serves. The others can be launched, and no two are the same."""
    for lines, depth, kind in ruled.products(4096, rows).values():
        serves, *others = ruled.candidates((lines, depth, kind), rows, 3)
        assert serves == eight_cut(lines, depth, rows, kind)
        assert len(others) > 5 and serves not in others
        assert all(fits(cut, lines, depth) and not cut.wide and cut.kind == kind for cut in others)
        assert len(set(others)) == len(others)
