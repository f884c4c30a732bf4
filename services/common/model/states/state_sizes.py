"""How many blocks, and how many bytes, the states of sequences take."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from services.common.model.spec import Attention, StackSpec


def kv_shape(spec: StackSpec, blocks: int, block_size: int, attention: Attention | None = None) -> tuple[int, ...]:
    """Return the shape [L, 2, N, S, Hkv, Dh] of paged K/V for the layers of a group, the only one if none is named."""
    own = spec.attention if attention is None else attention
    count = sum(layer.mixer == own for layer in spec.layers)
    return count, 2, blocks, block_size, own.kv_heads, own.head_dim


def first_places(blocks: int, near: int, device: torch.device) -> Tensor:
    """Return the places of blocks before there is a request, in the words of a block table."""
    numbers_N = torch.arange(blocks, dtype=torch.int32, device=device)
    return torch.where(numbers_N <= near, numbers_N, 0)


@dataclass(frozen=True)
class StateBytes:
    """Bytes of states: fixed, per slot, per token held, and per snapshot.

    Of those per token so many are of layers with a window.
    """

    fixed: int
    per_slot: int
    per_token: int
    per_snapshot: int
    windowed: int = 0


class Blocks(NamedTuple):
    """So many blocks of `size` tokens, block 0, the pad block, among them.

    With `near` layers with a window have places for so many, beside the pad block.
    """

    total: int
    size: int
    near: int = 0

    def of(self, attention: Attention) -> int:
        """Blocks that layers with this attention hold."""
        return self.near + 1 if self.near and attention.window else self.total
