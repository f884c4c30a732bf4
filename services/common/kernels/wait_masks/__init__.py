"""Waits, between the head and accept of a captured step, for masks that the host makes meanwhile."""

import numpy as np
from torch import Tensor

from services.common.kernels.dispatch import Operator


@Operator
def wait_masks(
    rows_B: Tensor, masked_S: Tensor, made_S: Tensor, number_1: Tensor, ready_B: Tensor, pad_slot: int, limit_s: float
) -> None:
    """Hold what follows on the stream until the masks of every masked row are made, or for `limit_s` at most.

    Args:
        rows_B: slot of each row, int32.
        masked_S: whether masks rule a slot, bool.
        made_S: the last round that a slot's masks were made for, int64; another stream writes it meanwhile.
        number_1: the round, int64.
        ready_B: receives the slot of each row, or `pad_slot` where masks came too late: such a row commits nothing.
        pad_slot: the slot that is never active.
        limit_s: seconds; a host that is late loses its rows of this round, and never the round.
    """
    slots_B = rows_B.numpy()
    late_B = masked_S.numpy()[slots_B] & (made_S.numpy()[slots_B] < number_1.numpy())
    ready_B.numpy()[:] = np.where(late_B, pad_slot, slots_B)
