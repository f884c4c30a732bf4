"""Whole drafts in eight bits against wide ones, without a target: random weights, context and anchors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from services.common.device.graph import StepGraphs
from services.common.model import DraftBlock, load_block
from services.common.model.states.state_sizes import kv_shape
from services.drafter.arena_view import ArenaView
from services.drafter.proposers.checkpoint import CheckpointProposer
from tests.bench.gpu.int8.timed import replayed
from tests.support.tiny_checkpoints import TinyShape, write_configs

Row = dict[str, Any]
_BLOCK_SIZE, _ROOM = 16, 64
"""Tokens of a block of K/V, and of room behind a context."""


class Drafts:
    """Captured drafts of one form of the weights."""

    def __init__(
        self,
        shape: TinyShape,
        block: DraftBlock,
        buckets: Sequence[int],
        context: int,
        device: str,
        dtype: torch.dtype,
    ) -> None:
        self._device, self._graphs = device, StepGraphs(device)
        self._drafts: dict[int, torch.Tensor] = {}
        proposer = CheckpointProposer(block, dtype)
        shared = arena(shape, block, max(buckets), context, device, dtype)
        proposer.check(shared)
        for bucket in sorted(buckets, reverse=True):
            self._capture(proposer, shared, bucket, shape.block_size)

    def _capture(self, proposer: CheckpointProposer, shared: ArenaView, bucket: int, width: int) -> None:
        def step() -> None:
            self._drafts[bucket] = proposer.propose(shared, shared.rows_B[:bucket], width)

        self._graphs.capture(bucket, step, shared.tensors())

    def micros(self, bucket: int) -> float:
        """Of a draft for so many sequences."""
        return round(replayed(lambda: self._graphs.replay(bucket), self._device), 1)

    def drafts(self, bucket: int) -> torch.Tensor:
        """What it proposes [B, K]."""
        self._graphs.replay(bucket)
        return self._drafts[bucket].clone()


def draft_rows(
    shape: TinyShape, buckets: Sequence[int], context: int, device: str, dtype: torch.dtype, folder: Path
) -> list[Row]:
    """One row for each number of sequences: both times, and whether drafts are those of the same sequences in more."""
    path = write_configs(folder, shape).drafter
    wide = Drafts(shape, load_block(path, dtype, device, random_weights=True), buckets, context, device, dtype)
    by_wide = {bucket: wide.micros(bucket) for bucket in buckets}
    del wide
    eight = load_block(path, dtype, device, random_weights=True, int8=True)
    found = Drafts(shape, eight, buckets, context, device, dtype)
    whole, rows = found.drafts(max(buckets)), []
    for bucket in buckets:
        drafts, micros = found.drafts(bucket), found.micros(bucket)
        rows.append({
            "draft": f"{bucket} x {shape.block_size} at {context}", "int8_us": micros, "wide_us": by_wide[bucket],
            "times": round(micros / by_wide[bucket], 3),
            "differ_from_more_rows": int((drafts != whole[:bucket]).sum()),
        })  # fmt: skip
    return rows


def arena(shape: TinyShape, block: DraftBlock, slots: int, context: int, device: str, dtype: torch.dtype) -> ArenaView:
    """The tensors that a target would share, with random contents; no two sequences share a block."""
    random = torch.Generator(device).manual_seed(9)
    columns = -(-(context + _ROOM) // _BLOCK_SIZE)
    table_SN = 1 + torch.arange(slots * columns, dtype=torch.int32, device=device).view(slots, columns)
    words = torch.zeros(slots, dtype=torch.int64, device=device)
    kv = torch.empty(kv_shape(block.spec, 1 + slots * columns, _BLOCK_SIZE), dtype=dtype, device=device)
    embed_VD = torch.empty(shape.vocab, shape.hidden, dtype=dtype, device=device)
    return ArenaView(
        length_S=words + context,
        anchor_S=torch.randint(2, shape.vocab, (slots,), device=device, generator=random),
        epoch_S=words,
        block_table_SN=table_SN,
        history_SC=torch.zeros((slots, context + _ROOM), dtype=torch.int32, device=device),
        history_length_S=words,
        rows_B=torch.arange(slots, dtype=torch.int32, device=device),
        tokens_SK=torch.zeros((slots, shape.block_size - 1), dtype=torch.int32, device=device),
        tag_S3=torch.zeros((slots, 3), dtype=torch.int64, device=device),
        embed_VD=embed_VD.normal_(generator=random).mul_(0.02),
        lm_head_VD=None,
        draft_kv=kv.normal_(generator=random),
        noise_TV=None,
        temperature_S=None,
        block_size=_BLOCK_SIZE,
    )
