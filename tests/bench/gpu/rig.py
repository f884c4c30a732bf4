"""A target's device side and a drafter's steps in one process: what their captured steps cost, without a hand-off."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from services.common.device.graph import StepGraphs
from services.common.model import load_block
from services.drafter.arena_view import ArenaView
from services.drafter.draft_runner import DraftRunner
from services.drafter.handoff.host import HostHandoff
from services.drafter.proposers.dflash import DflashProposer
from services.target.build_device import Worker, build_worker
from services.target.settings import TargetSettings
from tests.support.tiny_checkpoints import TinyShape, write_configs

FAR = 1 << 40


@dataclass(frozen=True)
class RigSettings:
    """What is built."""

    shape: TinyShape
    device: str
    dtype: str
    slots: int
    widths: tuple[int, ...]
    context_limit: int
    memory_bytes: int
    prefill_chunk: int = 2048


class Rig:
    """Steps that can be timed at any context length."""

    def __init__(self, settings: RigSettings, folder: Path) -> None:
        """Loads and captures; takes a minute or two."""
        self.settings = settings
        pair = write_configs(folder, settings.shape)
        self.worker: Worker = build_worker(
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
            ),
            os.getpid(),
        )
        self._dtype: torch.dtype = getattr(torch, settings.dtype)
        self._drafter = pair.drafter
        self.steps = self.worker.runner.steps
        self.pool = self.worker.runner.pool
        self.slots = self.pool.state.slots
        self.device = self.pool.device

    def drafter(self) -> StepGraphs:
        """Captured drafts by (bucket, width)."""
        block = load_block(self._drafter, self._dtype, self.settings.device, random_weights=True)
        proposer, graphs = DflashProposer(block, self._dtype), StepGraphs(self.device)
        shared = ArenaView.of(self.worker.arena, 16)
        proposer.check(shared)
        pacer = DraftRunner(shared, proposer, 1, graphs, HostHandoff(self.device))
        pacer.warm_up(self.worker.terms.buckets, (self.settings.widths[-1],))
        return graphs

    def seat(self, rows: int, context: int) -> None:
        """Makes `rows` slots live with so many tokens in K/V, each in blocks of its own."""
        state, per_slot = self.pool.state, -(-(context + 2048) // 16)
        self.steps.round.set_rows(tuple(range(rows)), self.pool.settings.pad_slot)
        columns = state.block_table_SN.shape[1]
        for slot in range(rows):
            first = 1 + slot * per_slot
            blocks = torch.arange(first, first + min(per_slot, columns), dtype=torch.int32)
            assert blocks[-1] <= self.pool.settings.blocks, "sequences that share blocks are read faster than others"
            state.block_table_SN[slot, : len(blocks)] = blocks
            self.slots.max_tokens_S[slot] = self.slots.limit_S[slot] = FAR
            self.slots.draft_limit_S[slot] = FAR
        self.reset(rows, context)

    def reset(self, rows: int, context: int) -> None:
        """Puts the slots back to the start."""
        self.slots.length_S[:rows] = context
        self.slots.generated_S[:rows] = 0
        self.slots.anchor_S[:rows] = 17
        self.slots.active_S[:rows] = True

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
