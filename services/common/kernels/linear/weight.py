"""What rows are multiplied by: numbers, or a weight that is kept in eight or four bits."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from services.common.kernels.linear.grouped.weight import GroupedWeight
from services.common.kernels.linear.int8_weight import Int8Weight
from services.common.kernels.linear.packed_weight import PackedWeight

Weight = Tensor | Int8Weight | PackedWeight | GroupedWeight


def lines(weight: Weight, first: int, end: int) -> Weight:
    """Return the outputs of a weight from `first` to before `end`, in the same memory if it is not packed."""
    if isinstance(weight, PackedWeight):
        return weight.each(lambda part: part[first:end])
    return weight[first:end] if isinstance(weight, Tensor) else weight.lines(first, end)


def changed(weight: Weight, change: Callable[[Tensor], Tensor]) -> Weight:
    """Return a weight whose lines, and what belongs to each of them, were changed alike."""
    return change(weight) if isinstance(weight, Tensor) else weight.each(change)


def joined(parts: Sequence[Weight]) -> Weight:
    """Return the lines of several weights as one weight; packed ones beside plain ones are widened."""
    first, *others = parts
    if not others:
        return first
    if isinstance(first, Int8Weight):
        return first.joined([one for one in others if isinstance(one, Int8Weight)])
    if isinstance(first, GroupedWeight):
        return first.joined([one for one in others if isinstance(one, GroupedWeight)])
    if isinstance(first, PackedWeight) and all(map(first.joins, others)):
        return first.joined([one for one in others if isinstance(one, PackedWeight)])
    return torch.cat([one if isinstance(one, Tensor) else one.widened() for one in parts])
