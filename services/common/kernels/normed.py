"""Rows on their way from one matrix product to the next."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Normed:
    """RMSNorm of a residual stream, as the next product takes it: at every number of rows in the same form.

    `rows_TD` are the stream's rows times the norm's weight. `squares_T` are the sums of the squares of the stream's
    rows, int64 multiples of 2^-24 (`sums.py`). The kernel that follows the product divides by the root of their mean,
    after the product was rounded to the rows' type. Without `squares_T` the rows are divided already.
    """

    rows_TD: Tensor
    squares_T: Tensor | None = None

    @property
    def width(self) -> int:
        """Columns of a row."""
        return self.rows_TD.shape[1]
