"""The wait in NumPy: on a CPU masks are made before the step runs, so nobody is waited for."""

import numpy as np
from torch import Tensor


def wait_masks(
    rows_B: Tensor, masked_S: Tensor, made_S: Tensor, number_1: Tensor, ready_B: Tensor, pad_slot: int
) -> None:
    """Write the slot of each row, or `pad_slot` where its masks are not made."""
    slots_B = rows_B.numpy()
    late_B = masked_S.numpy()[slots_B] & (made_S.numpy()[slots_B] < number_1.numpy())
    ready_B.numpy()[:] = np.where(late_B, pad_slot, slots_B)
