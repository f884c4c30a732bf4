"""Rows on their way from one matrix product to the next."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Normed:
    """RMSNorm of a residual stream, as the next product takes it.

    A program of a fused product has one band of columns, so it cannot divide by the norm. It writes the rows times the
    norm's weight, `rows_TD`, and the sum of squares of each band, `squares_TP`. The next product divides its result by
    the root of their mean. Without `squares_TP` the rows are divided already.
    """

    rows_TD: Tensor
    squares_TP: Tensor | None = None
