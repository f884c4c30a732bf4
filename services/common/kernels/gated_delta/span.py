"""What layers on a GPU need of a span: tensors that stay on the device, and sizes that are the same at every replay."""

from typing import NamedTuple

import torch
from torch import Tensor

from services.common.kernels.gated_delta.plan import BLOCK


class DeltaSpan(NamedTuple):
    """`width` rows of B sequences, from each one's length on; its state holds what is below `folded_B`.

    With `valid_B` so many first rows are real and certain to stay, as in a prompt; the others read zero. Without it all
    rows are real and none is certain, as in a verify. `folded_B` is what held before the forward, for every layer.
    """

    slots_B: Tensor
    lengths_B: Tensor
    folded_B: Tensor
    valid_B: Tensor | None
    width: int
    ring: int
    """Rows of a slot's ring."""
    taps: int

    @property
    def widest(self) -> int:
        """The widest round that the ring has room for."""
        return (self.ring - self.taps + 1 - BLOCK) // 2

    @property
    def most_blocks(self) -> int:
        """Blocks that rows of a sequence can lie in, those that are not folded yet included."""
        return (BLOCK - 1 + self.widest + self.width + BLOCK - 1) // BLOCK


def next_folded(span: DeltaSpan) -> Tensor:
    """Return the positions [B] that states hold after all layers have run, in the type of `folded_B`."""
    sure_B = span.lengths_B if span.valid_B is None else span.lengths_B + span.valid_B
    whole_B = torch.div(sure_B, BLOCK, rounding_mode="floor") * BLOCK
    return torch.maximum(span.folded_B, whole_B.to(span.folded_B.dtype))
