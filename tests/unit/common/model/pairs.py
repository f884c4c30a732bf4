"""Made-up checkpoints and small helpers that the model tests share."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from services.common.kernels.span_attention import Span, plan_context, plan_span
from services.common.model import DraftBlock, Target, load_block, load_target
from services.common.model.drafters.context import BlockContext, load_context
from services.common.model.families import open_family
from services.common.model.files.checkpoint import Checkpoint
from services.common.model.states.states import Part, Rows, SequenceStates
from tests.support.tiny_checkpoints import TinyShape, write_tiny

BLOCK_SIZE = 4


def load_pair(
    folder: Path,
    shape: TinyShape | None = None,
    dtype: torch.dtype = torch.float32,
    seed: int = 1,
    drafter: Mapping[str, Any] | None = None,
) -> tuple[Target, BlockContext, DraftBlock]:
    """Write a made-up pair and load its three parts."""
    pair = write_tiny(folder, seed, shape, std=0.25, drafter=drafter)
    target = load_target(pair.target, dtype)
    return target, load_context(pair.drafter, target), load_block(pair.drafter, dtype)


def tables(counts: list[int], columns: int) -> Tensor:
    """Return block tables [B, N] whose blocks are interleaved, so that no row's blocks are in order."""
    table_BN = torch.zeros(len(counts), columns, dtype=torch.int32)
    free = list(range(sum(counts), 0, -1))
    for column in range(max(counts)):
        for row, count in enumerate(counts):
            if column < count:
                table_BN[row, column] = free.pop(0)
    return table_BN


def span_at(table_BN: Tensor, lengths: list[int], width: int, valid: list[int] | None = None) -> Rows:
    """Plan rows of one span with the tests' block size."""
    valid_B = None if valid is None else torch.tensor(valid)
    return one_span(plan_span(table_BN, torch.tensor(lengths), width, BLOCK_SIZE, valid_B))


def one_span(span: Span) -> Rows:
    """Rows of one span, its sequences in the first slots."""
    return Rows(Part(span, torch.arange(len(span.lengths_B))))


def forward(
    target: Target, ids_BW: Tensor, rows: Rows, states: SequenceStates, taps: tuple[int, ...] = ()
) -> tuple[Tensor, Tensor]:
    """Run rows of one span; return hidden states and features [B, W, ...]."""
    hidden_TD, features_TF = target.forward(ids_BW.flatten(), rows, states, taps)
    return hidden_TD.view(*ids_BW.shape, -1), features_TF.unflatten(0, ids_BW.shape)


def context_kv(context: BlockContext, blocks: int = 40) -> Tensor:
    """Return draft context K/V full of NaN, of blocks of the tests' size."""
    return poisoned(torch.empty(context.kv_shape(blocks, BLOCK_SIZE), dtype=context.dtype))


def block_ids(block: DraftBlock, anchors_B: Tensor) -> Tensor:
    """Ids [B, W] of a drafter's block: anchors, and masks after them."""
    return F.pad(anchors_B[:, None], (0, block.spec.block_size - 1), value=block.spec.mask_token_id)


def context_at(table_BN: Tensor, lengths: list[int], width: int) -> Rows:
    """Plan a drafter's block with the tests' block size."""
    return one_span(plan_context(table_BN, torch.tensor(lengths), width, BLOCK_SIZE))


def poisoned(kv: Tensor) -> Tensor:
    """Fill K/V with NaN: whatever is read without having been written shows."""
    return kv.fill_(float("nan"))


def poisoned_states(target: Target, blocks: int = 40) -> SequenceStates:
    """Return states full of NaN, of blocks of the tests' size and for four slots; what they count stays."""
    states = target.new_states(blocks, BLOCK_SIZE, slots=4, width=16, snapshots=3)
    for tensor in states.tensors:
        if tensor.is_floating_point():
            poisoned(tensor)
    return states


def ids_like(*shape: int, vocab: int = 320, seed: int = 3) -> Tensor:
    """Return random ordinary token ids."""
    return torch.randint(2, vocab, shape, generator=torch.Generator().manual_seed(seed))


def zero_centred(folder: Path, dtype: torch.dtype, device: str) -> Target:
    """Load a target whose norms keep their weights less one, and add it when they multiply."""
    family, spec = open_family(folder)
    weights = family.read_weights(spec, Checkpoint(folder), dtype, torch.device(device))
    layers = tuple(
        replace(
            layer,
            input_norm_D=layer.input_norm_D - 1,
            post_norm_D=layer.post_norm_D - 1,
            mixer=replace(
                layer.attention, head_norm_HD=None if (norm := layer.attention.head_norm_HD) is None else norm - 1
            ),
        )
        for layer in weights.layers
    )
    return Target(replace(spec, norm_offset=1.0), replace(weights, layers=layers, norm_D=weights.norm_D - 1))
