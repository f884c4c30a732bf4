"""Waits, at the head of a captured step, for a flag that another process's stream writes."""

import time

from torch import Tensor

from services.common.kernels.dispatch import Operator


@Operator
def wait_flag(flags: Tensor, stamp_2: Tensor, word: int, limit_s: float) -> None:
    """Hold what follows on the stream until a flag has reached a round, or for `limit_s` at most.

    Args:
        flags: int64, pairs of words; that of a generation is its number modulo their count.
        stamp_2: the round, and its generation, int64.
        word: 0 or 1, which of the pair.
    """
    deadline = time.monotonic() + limit_s
    while not reached(flags, stamp_2, word) and time.monotonic() < deadline:
        time.sleep(0)


def reached(flags: Tensor, stamp_2: Tensor, word: int) -> bool:
    """Whether the flag of the stamp's generation has reached its round."""
    number, generation = stamp_2.tolist()
    return int(flags[2 * (generation % (len(flags) // 2)) + word]) >= int(number)
