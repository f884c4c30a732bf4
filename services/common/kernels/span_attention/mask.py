"""Limits which positions the rows of a span see: sliding windows, and ancestors in a tree of drafts."""

from dataclasses import dataclass

import torch
from torch import Tensor

_BITS = 64


@dataclass(frozen=True)
class Mask:
    """How far back rows see, and which rows of their own span they see.

    `window` counts positions, the row's own included; 0 means no limit. Bit i of row j in `ancestors_BW`, int64, lets
    row j see row i of its span, i <= j: in a tree the rows it descends from and itself. The position of such a row is
    the context's length plus the number of its ancestors, and a window must hold the whole span. Without `ancestors_BW`
    rows see the rows before them, and all rows of a block that is not `causal`. For a GPU `lineage_BWW`, int32,
    says the same: the row of a row's ancestor at each depth, itself at its own; and `depths_BW` how many it has. With
    these a row has the bits that its path has as a chain.
    """

    window: int = 0
    ancestors_BW: Tensor | None = None
    causal: bool = False
    lineage_BWW: Tensor | None = None
    depths_BW: Tensor | None = None

    @property
    def is_open(self) -> bool:
        """Whether the mask hides nothing."""
        return not self.window and self.ancestors_BW is None and not self.causal


OPEN = Mask()


def masked_positions(lengths_B: Tensor, ancestors_BW: Tensor, window: int, depths_BW: Tensor | None = None) -> Tensor:
    """Return the positions of a tree's rows, by the number of their ancestors, where that is not told."""
    width = ancestors_BW.shape[1]
    assert width <= _BITS, "a row's ancestors are bits of one word"
    assert not window or window >= width, "a window holds a whole tree"
    if depths_BW is not None:
        return lengths_B[:, None] + depths_BW
    bits_BWN = ancestors_BW[:, :, None] >> torch.arange(_BITS, device=lengths_B.device)
    return lengths_B[:, None] + (bits_BWN & 1).sum(-1) - 1


def masked_bias(places_BT: Tensor, lengths_B: Tensor, positions_BW: Tensor, mask: Mask, causal: bool) -> Tensor:
    """Return the bias `[B, 1, W, T]`: zero where a row sees a place, -inf elsewhere; no row sees a place below zero."""
    width = positions_BW.shape[1]
    places_B1T = places_BT.expand(len(lengths_B), -1)[:, None]
    offset_B1T = places_B1T - lengths_B[:, None, None]
    if mask.ancestors_BW is not None:
        own_BWT = (mask.ancestors_BW[:, :, None] >> offset_B1T.clamp(0, _BITS - 1)) & 1 != 0
    else:
        last_W1 = torch.arange(width)[:, None] if causal or mask.causal else torch.full((width, 1), width - 1)
        own_BWT = offset_B1T <= last_W1
    own_BWT = own_BWT & (offset_B1T >= 0) & (offset_B1T < width)
    past_BWT = (places_B1T >= 0) & (offset_B1T < 0)
    if mask.window:
        near_BWT = places_B1T > positions_BW[:, :, None] - mask.window
        past_BWT = past_BWT & near_BWT
        # A row of a tree is stored at another place than its position.
        own_BWT = own_BWT & (near_BWT if mask.ancestors_BW is None else True)
    return torch.zeros(own_BWT.shape).masked_fill_(~(past_BWT | own_BWT), float("-inf"))[:, None]
