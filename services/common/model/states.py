"""The state that sequences keep in a model, by kind of layer; attention keeps keys and values in blocks."""

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
    """Bytes of states: fixed, per slot, and per token held."""

    fixed: int
    per_slot: int
    per_token: int


class SequenceStates:
    """The states of all sequences of a target: paged K/V of every layer, under the block ids of the requests' tables.

    Rows are written at absolute positions and only lengths move, so the next rows overwrite rejected ones.
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
        """A slot gets another request. Does nothing for K/V, which a request finds by its block table alone."""

    def commit(self, rows_B: Tensor, counts_B: Tensor) -> None:
        """Slots [B] have grown by counts [B] tokens. Does nothing for K/V, whose rows stay in place."""

    def resumable(self, tokens: int) -> bool:
        """Whether a request can go on from a prefix hit of so many tokens: with K/V from any."""
        return True
