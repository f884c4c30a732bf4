"""The kernels that tell the host what rows choose where no mask is."""

import pytest

from services.common.kernels.accept import SlotParams
from tests.kernels.gpu.devices import DEVICE
from tests.kernels.peek_cases import UNFILTERED, check_choices, check_rows

VOCAB = 300 if DEVICE == "cpu" else 49_152 + 7
SEEDS, CASES = (1, UNFILTERED[:2]) if DEVICE == "cpu" else (40, UNFILTERED)


@pytest.mark.parametrize("params", CASES)
def test_what_is_told_is_chosen_wherever_a_mask_has_it(params: SlotParams) -> None:
    for seed in range(SEEDS):
        check_choices(params, VOCAB, DEVICE, seed, number=2**40 + seed)


@pytest.mark.parametrize("params", CASES)
def test_rows_are_told_of_their_own_positions(params: SlotParams) -> None:
    check_rows(params, VOCAB, DEVICE, 5)
