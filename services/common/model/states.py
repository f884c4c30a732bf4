"""Everything that a sequence leaves behind in a model, by kind of layer; attention leaves keys and values in blocks."""

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from services.common.model.spec import StackSpec


def kv_shape(spec: StackSpec, blocks: int, block_size: int) -> tuple[int, ...]:
    """Return the shape [L, 2, N, S, Hkv, Dh] of a stack's paged K/V."""
    attention = spec.attention
    return len(spec.layers), 2, blocks, block_size, attention.kv_heads, attention.head_dim


@dataclass(frozen=True)
class StateBytes:
    """What states take in bytes: as soon as there are any, for every slot, and for every token held."""

    fixed: int
    per_slot: int
    per_token: int


class SequenceStates:
    """The states of all sequences of a target: paged K/V of every layer, under the block ids of the requests' tables.

    Rows are written at absolute positions and only lengths move, so rejected rows are undone by being written again.
    """

    def __init__(self, spec: StackSpec, blocks: int, block_size: int, dtype: torch.dtype, device: torch.device) -> None:
        """Zeroed; `blocks` includes block 0, the pad block."""
        self._kv_L2NSHD = torch.zeros(kv_shape(spec, blocks, block_size), dtype=dtype, device=device)
        self.layers = self._kv_L2NSHD.unbind()

    @staticmethod
    def sizes(spec: StackSpec, itemsize: int) -> StateBytes:
        """Return the bytes that the states of a spec take; nothing but blocks for attention."""
        return StateBytes(fixed=0, per_slot=0, per_token=prod(kv_shape(spec, 1, 1)) * itemsize)

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor that a step reads or writes, for signatures and for poisoning."""
        return [self._kv_L2NSHD]

    def reset(self, slot: int) -> None:
        """A slot changes hands: nothing to do for K/V, which a request finds by its block table alone."""

    def commit(self, rows_B: Tensor, counts_B: Tensor) -> None:
        """Slots [B] have grown by counts [B]: nothing to do for K/V, whose rows lie where they stay."""

    def resumable(self, tokens: int) -> bool:
        """Whether a request can go on from a prefix hit of so many tokens: with K/V from any."""
        return True
