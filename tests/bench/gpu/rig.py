"""A target's device side and a drafter's steps in one process: what their captured steps cost, without a hand-off.

K/V, anchors and drafts are random and no two rows are alike: a GPU takes zeros and equal rows faster than real ones.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from services.common.device.graph import StepGraphs
from services.common.model import load_block
from services.drafter.arena_view import ArenaView
from services.drafter.attachment import DraftRunner
from services.drafter.handoff.host import HostHandoff
from services.drafter.proposers.checkpoint import CheckpointProposer
from services.target.build_device import Worker, build_worker
from services.target.settings import TargetSettings
from tests.support.tiny_checkpoints import TinyShape, write_configs

FAR = 1 << 40
ROOM = 2048
"""Positions behind a sequence's context that it has blocks for."""
_ROUND, _GENERATION, _SEED = 1, 1, 22
_CODES_DIMENSIONS = 5
"""Of a layer's codes; their exponents have one less."""


@dataclass(frozen=True)
class RigSettings:
    """What is built; a `prefill_chunk` of 0 is the device's default, with larger packs in a pause."""

    shape: TinyShape
    device: str
    dtype: str
    slots: int
    widths: tuple[int, ...]
    context_limit: int
    memory_bytes: int
    prefill_chunk: int = 0
    family: str = "qwen3"
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Of the target's config.json."""
    activations: str = "auto"
    """Type of the rows that the target's products read, and of its weights."""
    kv_dtype: str = "auto"
    keep_widened: bool = True
    """Of packed weights: whether many rows are multiplied by numbers beside the codes."""


class Rig:
    """Steps that can be timed at any context length."""

    def __init__(self, settings: RigSettings, folder: Path) -> None:
        """Loads and captures; takes a minute or two."""
        pair = write_configs(folder, settings.shape, settings.family, settings.changes)
        worker = build_worker(
            TargetSettings(
                model=str(pair.target),
                drafter_model=str(pair.drafter),
                drafter_address="unix:/nowhere",
                random_weights=True,
                device=settings.device,
                dtype=settings.dtype,
                slots=settings.slots,
                context_limit=settings.context_limit,
                memory_bytes=settings.memory_bytes,
                widths=settings.widths,
                prefill_chunk=settings.prefill_chunk,
                adaptive=False,
                handoff="host",
                exact="off",
                fp8_products="true",
                int4_products="true",
                activations=settings.activations,
                kv_dtype=settings.kv_dtype,
                keep_widened=settings.keep_widened,
            ),
            os.getpid(),
        )
        self._take(settings, worker, pair.drafter)

    @classmethod
    def around(cls, settings: RigSettings, worker: Worker, drafter: Path) -> Rig:
        """A rig of a target's device side that is there, with `drafter`'s folder, and is used by nobody else."""
        rig = cls.__new__(cls)
        rig._take(settings, worker, drafter)
        return rig

    def _take(self, settings: RigSettings, worker: Worker, drafter: Path) -> None:
        self.settings, self.worker = settings, worker
        self._dtype: torch.dtype = getattr(torch, settings.dtype)
        self._drafter = drafter
        self.steps = self.worker.runner.steps
        self.pool = self.worker.runner.pool
        self.slots = self.pool.state.slots
        self.device = self.pool.device
        self._random = torch.Generator(self.device).manual_seed(_SEED)
        self._anchors_S = self._tokens(settings.slots)
        for kept_LX in (*self.pool.states.tensors, self.pool.draft_kv):
            for layer_X in kept_LX.unbind():
                _draw(layer_X, self._random)

    def drafter(self, int8: bool = False) -> StepGraphs:
        """Captured drafts by (bucket, width); with `int8` its products are by weights of eight bits."""
        block = load_block(self._drafter, self._dtype, self.settings.device, random_weights=True, int8=int8)
        proposer, graphs = CheckpointProposer(block, self._dtype), StepGraphs(self.device)
        shared = ArenaView.of(self.worker.arena, 16)
        proposer.check(shared)
        pacer = DraftRunner(shared, proposer, 1, graphs, HostHandoff(self.device))
        pacer.warm_up(self.worker.terms.buckets, (self.settings.widths[-1],))
        return graphs

    def verify_key(self, bucket: int, width: int, context: int) -> Hashable:
        """Of the greedy verify that a target would replay at this context; older trees capture one for all."""
        choose = getattr(self.pool.settings, "kind", None)
        return "verify" if choose is None else choose(bucket, width, context + width), bucket, width, "greedy"

    def seat(self, rows: int, context: int, room: int = ROOM) -> None:
        """Makes `rows` slots live with so many tokens in K/V, each in blocks of its own, and with drafts of its own."""
        per_slot = -(-(context + room) // self.pool.settings.block_size)
        assert rows * per_slot <= self.pool.settings.blocks, "sequences that share blocks are read faster than others"
        self.place(torch.arange(1, 1 + rows * per_slot, dtype=torch.int32).view(rows, per_slot), context)

    def place(self, blocks_RN: torch.Tensor, context: int) -> None:
        """The same with the blocks of each slot given."""
        state, rows = self.pool.state, len(blocks_RN)
        self.steps.round.set_rows(tuple(range(rows)))
        columns = min(blocks_RN.shape[1], state.block_table_SN.shape[1])
        state.block_table_SN[:rows, :columns] = blocks_RN[:, :columns].to(self.device)
        # Without a new version the table that a drafter reads stays as it was.
        state.version += 1
        self.slots.max_tokens_S[:rows] = self.slots.limit_S[:rows] = FAR
        self.slots.draft_limit_S[:rows] = FAR
        self._draft(rows)
        self.reset(rows, context)

    def reset(self, rows: int, context: int) -> None:
        """Puts the slots back to the start."""
        self.slots.length_S[:rows] = context
        self.slots.generated_S[:rows] = 0
        self.slots.anchor_S[:rows] = self._anchors_S[:rows]
        self.slots.active_S[:rows] = True
        if grid := self.pool.states.grid:
            self.pool.states.tensors[-1][:rows] = context // grid * grid

    def _draft(self, rows: int) -> None:
        """Fills the mailbox for a round that stays the present one."""
        inputs, mailbox_SK, tag_S3 = self.steps.round, self.pool.mailbox_SK, self.pool.tag_S3
        inputs.set_round(_ROUND)
        inputs.set_generation(_GENERATION)
        mailbox_SK[:rows] = self._tokens(rows, mailbox_SK.shape[1]).to(mailbox_SK.dtype)
        tag_S3[:rows, 0], tag_S3[:rows, 2] = _ROUND, _GENERATION
        tag_S3[:rows, 1] = self.pool.state.epoch_S[:rows]

    def _tokens(self, *shape: int) -> torch.Tensor:
        """Random ids behind those with a meaning of their own."""
        vocab = self.settings.shape.vocab
        return torch.randint(2, vocab, shape, generator=self._random, device=self.device)

    def synchronise(self) -> None:
        """Waits for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def micros(self, run: Callable[[], object], repeats: int = 30, batches: int = 5) -> float:
        """Median microseconds of a call, from batches of calls in a row."""
        run()
        times = []
        for _ in range(batches):
            self.synchronise()
            start = time.perf_counter()
            for _ in range(repeats):
                run()
            self.synchronise()
            times.append((time.perf_counter() - start) / repeats * 1e6)
        return statistics.median(times)


def _draw(layer_X: Tensor, generator: torch.Generator) -> None:
    """Fill what a layer keeps: numbers, or codes and exponents of some."""
    if layer_X.is_floating_point():
        layer_X.normal_(generator=generator)
    elif layer_X.dtype == torch.int8:
        lowest, behind = (-127, 128) if layer_X.ndim == _CODES_DIMENSIONS else (-7, 0)
        layer_X.random_(lowest, behind, generator=generator)
