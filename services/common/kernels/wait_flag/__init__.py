"""Waits, at the head of a captured step, for a flag that another process's stream writes."""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.wait_flag import reference


def wait_flag(flags: Tensor, stamp_2: Tensor, word: int, limit_s: float) -> None:
    """Hold what follows on the stream until a flag has reached a round, or for `limit_s` at most.

    Args:
        flags: int64, pairs of words; that of a generation is its number modulo their count.
        stamp_2: the round, and its generation, int64.
        word: 0 or 1, which of the pair.
    """
    if on_kernel(flags):
        from services.common.kernels.wait_flag import kernel

        kernel.wait_flag(flags, stamp_2, word, limit_s)
    else:
        reference.wait_flag(flags, stamp_2, word, limit_s)
