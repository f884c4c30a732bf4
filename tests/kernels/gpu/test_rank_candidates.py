"""How likely candidates are behind one another, by kernel and on a CPU."""

import pytest
import torch

from services.common.kernels.rank_candidates import kernel, rank_candidates
from tests.kernels.candidate_cases import VOCAB, drawn
from tests.kernels.gpu.devices import DEVICE, DTYPES


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "count", "candidates", "rank"), [(1, 7, 16, 32), (3, 15, 6, 12), (2, 1, 1, 5)])
def test_chances_are_those_of_the_reference(
    batch: int, count: int, candidates: int, rank: int, dtype: torch.dtype
) -> None:
    given = drawn(batch, count, candidates, rank, dtype)
    for more in ([], [torch.rand(batch) + 0.5, torch.rand(batch) + 0.5]):
        own = [*given, *more]
        wide = [one.double() if one.is_floating_point() else one for one in own]
        ids, chances = rank_candidates.reference(*wide)
        moved = [one.to(DEVICE) for one in own]
        # Anchors are the first column of blocks: masks lie between them.
        moved[5] = torch.stack((moved[5], torch.ones_like(moved[5])), 1)[:, 0]
        got_ids, got = kernel.rank_candidates(*moved)
        assert torch.equal(got_ids.cpu(), ids)
        torch.testing.assert_close(got.cpu().double(), chances, atol=2e-5, rtol=1e-5)


def test_what_is_no_number_has_no_chance() -> None:
    ids, scores = torch.tensor([[[9, 4, 7], [3, 8, 2]]]), torch.zeros(1, 2, 3)
    scores[0, 1, 0], scores[0, 0] = torch.nan, torch.nan
    zeros = torch.zeros(VOCAB, 4)
    given = [ids, scores, torch.ones(1, 2, 4), zeros, zeros, torch.tensor([-1])]
    got_ids, got = kernel.rank_candidates(*(one.to(DEVICE) for one in given))
    assert got_ids.tolist() == [[[4, 7, 9], [2, 3, 8]]]
    assert torch.isneginf(got[0, 0]).all()
    assert torch.isneginf(got[0, 1]).tolist() == [[False, True, False]] * 3


def test_a_sequence_is_ranked_alike_in_any_company() -> None:
    given = [one.to(DEVICE) for one in drawn(4, 7, 16, 32, torch.bfloat16)]
    _, whole = kernel.rank_candidates(*given)
    for line in range(4):
        one = [each if len(each) == VOCAB else each[line : line + 1] for each in given]
        assert torch.equal(kernel.rank_candidates(*one)[1], whole[line : line + 1])


@pytest.mark.parametrize(("candidates", "rank"), [(16, 1025), (33, 300)])
def test_codes_that_shared_memory_does_not_hold_are_ranked(
    candidates: int, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "rank_kernel", None)
    given = [one.to(DEVICE) for one in drawn(2, 3, candidates, rank, torch.float32)]
    for got, expected in zip(kernel.rank_candidates(*given), rank_candidates.reference(*given), strict=True):
        assert torch.equal(got, expected)
