"""Fingerprints: one 64-bit number for each row of a tensor, by which rows are compared without being kept.

The bits of a row, as integers, are multiplied by odd random numbers and added modulo 2^64. Rows that differ in one
number never share a print; others do by a chance of about 2^-60. Float64 is for tests on a CPU, whose libraries order
sums by rows: it is compared as bfloat16, so that the last digits do not count.
"""

import torch
from torch import Tensor

_SEED = 22
AT_ONCE = 1 << 23
"""Numbers that are widened to 64 bits at a time: 64 MiB."""
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32}


class Prints:
    """Makes fingerprints on one device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._known: dict[int, Tensor] = {}

    def of(self, x_RN: Tensor) -> Tensor:
        """Return the prints [R] of rows [R, N]."""
        rows, count = x_RN.shape
        factors_N = self._factors(count)
        at_once = max(1, AT_ONCE // max(1, count))
        parts = [(_bits(x_RN[first : first + at_once]) * factors_N).sum(1) for first in range(0, rows, at_once)]
        return torch.cat(parts)

    def _factors(self, count: int) -> Tensor:
        """Return the factors of rows of a length, always the same."""
        if count not in self._known:
            generator = torch.Generator().manual_seed(_SEED)
            drawn_N = torch.randint(-(1 << 63), (1 << 63) - 1, (count,), generator=generator) | 1
            self._known[count] = drawn_N.to(self._device)
        return self._known[count]


def _bits(x_RN: Tensor) -> Tensor:
    narrow_RN = x_RN.bfloat16() if x_RN.dtype == torch.float64 else x_RN
    return narrow_RN.contiguous().view(_WORDS[narrow_RN.element_size()]).long()
