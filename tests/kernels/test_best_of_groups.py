"""The best scores of a row by groups are those of all its scores."""

import pytest
import torch

from services.common.kernels.argmax_token import best_of_groups, top_of_groups

WHOLE, ODD = 49_152, 50_257


@pytest.mark.parametrize("vocab", [WHOLE, ODD, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_best_are_those_of_the_whole_row(vocab: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(11)
    scores_RV = torch.randn((7, vocab), generator=generator).to(dtype)
    assert torch.equal(best_of_groups(scores_RV), scores_RV.argmax(-1))
    assert torch.equal(best_of_groups(scores_RV.view(1, 7, vocab)), scores_RV.argmax(-1)[None])
    for count in (1, 8, 16):
        values_RC, ids_RC = top_of_groups(scores_RV, count)
        expected = scores_RV.topk(count, -1)
        assert torch.equal(values_RC, expected.values)
        assert torch.equal(ids_RC, expected.indices)


def test_the_lowest_of_equals_is_the_best() -> None:
    """Two of a group, and one of a later group; then a row whose scores are all the same."""
    scores_RV = torch.zeros(2, WHOLE)
    scores_RV[0, [300, 310, 700]] = 1.0
    assert best_of_groups(scores_RV).tolist() == [300, 0]


def test_a_few_equals_are_counted_once_each() -> None:
    scores_1V = torch.zeros(1, WHOLE)
    scores_1V[0, 5_000:5_012] = 2.0
    scores_1V[0, 40_000] = 3.0
    values_1C, ids_1C = top_of_groups(scores_1V, 8)
    assert values_1C.tolist() == [[3.0] + 7 * [2.0]]
    assert ids_1C[0, 0] == 40_000
    assert len(set(ids_1C[0].tolist())) == 8
    assert bool((scores_1V[0, ids_1C[0]] == values_1C[0]).all())


def test_what_is_no_number_is_found_as_by_the_whole_row() -> None:
    scores_RV = torch.randn((2, WHOLE), generator=torch.Generator().manual_seed(12))
    scores_RV[0, 33_333] = torch.nan
    scores_RV[1, 20:40] = -torch.inf
    assert torch.equal(best_of_groups(scores_RV), scores_RV.argmax(-1))
    assert top_of_groups(scores_RV, 8)[1][0, 0] == 33_333
