"""The start of a forward over slots: ids, lengths, block tables and positions of a round's rows.

Suffixes: S slots + 1, N blocks of a slot, B rows, W the span, K drafts, one less.
"""

from services.common.kernels.dispatch import Operator
from services.common.kernels.prepare_span import reference

__all__ = ["prepare_span", "seat_block"]

prepare_span = Operator(reference.prepare_span, told_by=3)
seat_block = Operator(reference.seat_block, told_by=3)
