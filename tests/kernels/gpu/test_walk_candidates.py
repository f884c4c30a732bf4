"""Drafts among candidates by kernel and on a CPU."""

import pytest
import torch

from services.common.kernels.walk_candidates import kernel, walk_candidates
from tests.kernels.candidate_cases import VOCAB, drawn
from tests.kernels.gpu.devices import DEVICE, DTYPES


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "count", "candidates", "rank"), [(1, 7, 16, 32), (3, 15, 6, 12), (2, 1, 1, 5)])
def test_drafts_are_those_of_the_reference(
    batch: int, count: int, candidates: int, rank: int, dtype: torch.dtype
) -> None:
    given = drawn(batch, count, candidates, rank, dtype)
    for scale in ([], [torch.rand(batch) + 0.5]):
        own = [*given, *scale]
        wide = [one.double() if one.is_floating_point() else one for one in own]
        expected = walk_candidates.reference(*wide)
        moved = [one.to(DEVICE) for one in own]
        # Anchors are the first column of blocks: masks lie between them.
        moved[5] = torch.stack((moved[5], torch.ones_like(moved[5])), 1)[:, 0]
        got = kernel.walk_candidates(*moved)
        assert torch.equal(got.cpu(), expected)
        assert got.shape == (batch, count)


def test_the_lowest_of_equals_is_chosen_and_what_is_no_number_is_last() -> None:
    ids = torch.tensor([[[9, 4, 7], [3, 8, 2]]])
    scores = torch.tensor([[[1.0, 1.0, 1.0], [torch.nan, 5.0, 6.0]]])
    zeros = torch.zeros(VOCAB, 4)
    given = [ids, scores, torch.ones(1, 2, 4), zeros, zeros, torch.tensor([-1])]
    assert kernel.walk_candidates(*(one.to(DEVICE) for one in given)).tolist() == [[4, 2]]
    given[1] = torch.full((1, 2, 3), torch.nan)
    assert kernel.walk_candidates(*(one.to(DEVICE) for one in given)).tolist() == [[4, 2]]


def test_a_sequence_drafts_alike_in_any_company() -> None:
    given = [one.to(DEVICE) for one in drawn(4, 7, 16, 32, torch.bfloat16)]
    whole = kernel.walk_candidates(*given)
    for line in range(4):
        one = [each if len(each) == VOCAB else each[line : line + 1] for each in given]
        assert torch.equal(kernel.walk_candidates(*one), whole[line : line + 1])
