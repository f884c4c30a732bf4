"""Rows on their way from one matrix product to the next."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Normed:
    """RMSNorm of a residual stream, as the next product takes it.

    A fused product leaves the last step to its successor: it has each band of columns only, so it writes the rows times
    the norm's weight, `rows_TD`, and the sum of squares of each band, `squares_TP`; the successor divides its result by
    the root of their mean. Without `squares_TP` the rows are divided already.
    """

    rows_TD: Tensor
    squares_TP: Tensor | None = None
