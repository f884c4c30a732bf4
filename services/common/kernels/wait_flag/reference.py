"""The wait in torch, where flags are memory of the host."""

import time

from torch import Tensor


def wait_flag(flags: Tensor, stamp_2: Tensor, word: int, limit_s: float) -> None:
    """Return when the flag has reached the round, or after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not reached(flags, stamp_2, word) and time.monotonic() < deadline:
        time.sleep(0)


def reached(flags: Tensor, stamp_2: Tensor, word: int) -> bool:
    """Whether the flag of the stamp's generation has reached its round."""
    number, generation = stamp_2.tolist()
    return int(flags[2 * (generation % (len(flags) // 2)) + word]) >= int(number)
