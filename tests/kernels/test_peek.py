"""The choice without a mask, which the host is told of, is the choice under each mask that has it."""

import pytest
import torch

from services.common.kernels.accept import SlotParams
from services.common.kernels.accept.reference import LAST_BITS
from tests.kernels.peek_cases import (
    FILTERED,
    SILENT,
    SLOTS,
    UNFILTERED,
    check_choices,
    check_rows,
    slots_of,
    told,
)

VOCAB = 40


@pytest.mark.parametrize("params", UNFILTERED)
def test_what_is_told_is_chosen_wherever_a_mask_has_it(params: SlotParams) -> None:
    cases = [check_choices(params, VOCAB, "cpu", seed, number=2**40 + seed) for seed in range(60)]
    rows, had = (sum(numbers) for numbers in zip(*cases, strict=True))
    assert rows // 3 < had < rows


@pytest.mark.parametrize("params", UNFILTERED)
def test_rows_are_told_of_their_own_positions(params: SlotParams) -> None:
    check_rows(params, VOCAB, "cpu", 3)


@pytest.mark.parametrize("params", FILTERED)
def test_nothing_is_told_where_it_would_not_hold(params: SlotParams) -> None:
    logits = torch.randn(SLOTS, 1, VOCAB, generator=torch.Generator().manual_seed(1))
    _, rounds = told(slots_of(params, VOCAB, "cpu", SLOTS), logits, LAST_BITS)
    assert (rounds == SILENT >> 32).all()
