"""Reads the drafts of a round for those whose masks need them, while its step is on the way."""

from collections.abc import Callable, Sequence
from time import perf_counter, sleep
from typing import NamedTuple

import torch
from torch import Tensor

from services.common.kernels.mailbox import read_mailbox
from services.common.kernels.nodes import Nodes, first_path
from services.common.pair.arena.flags import row_copier
from services.target.core.plan import Plan
from services.target.device.context import Pool
from services.target.device.state import Rows
from services.target.device.verify import RoundInputs

Watch = Callable[[torch.cuda.Event | None], None]
NEAR_S = 0.002
"""Drafts that take longer are waited for with sleep; masks that were made so long ago are told."""


class Path(NamedTuple):
    """The drafts of a row that masks are made for, one behind the other, and the rows of the round that they have."""

    rows: Sequence[int] = ()
    tokens: Sequence[int] = ()


class Drafted:
    """The drafts of rounds on the host; on a GPU copies bring them, behind the drafter's mark."""

    def __init__(self, pool: Pool, inputs: RoundInputs) -> None:
        """Reads a pool's mailbox."""
        self._pool, self._inputs, self._copied = pool, inputs, pool.device.type == "cuda"
        most = pool.settings.buckets[-1], pool.settings.widest - 1
        self._drafts_N = torch.zeros(most[0] * most[1], dtype=torch.int64, device=pool.device)
        self._came_SK, self._tag_S3 = pool.mailbox_SK, pool.tag_S3
        if self._copied:
            self._came_SK, self._tag_S3 = (
                torch.zeros(like.shape, dtype=like.dtype, pin_memory=True) for like in (pool.mailbox_SK, pool.tag_S3)
            )
            # A drafter that is late may write between the two: masks are then of drafts that no step walks.
            self._copies = [row_copier(pool.mailbox_SK, self._came_SK), row_copier(pool.tag_S3, self._tag_S3)]
        self._came, self._tags = self._came_SK.numpy(), self._tag_S3.numpy()

    def offer(self, plan: Plan, seated: Rows, generation: int, watch: Watch, mends: bool) -> Callable[[], list[Path]]:
        """Enqueues the reading of a round's drafts; returns what waits for them by `watch` and tells each row's.

        Where rows are nodes it tells the path of first children: a grammar walks one path. Where it `mends` the step
        behind waits until `mend` was called.
        """
        inputs, bucket = self._inputs, plan.bucket
        if plan.nodes:
            told = self._read_trees(bucket, int(plan.width))
        else:
            expected = [(plan.number, seat.epoch, generation) for _, seat in seated]
            told = self._read_chains([slot for slot, _ in seated], expected, int(plan.width) - 1)
        if not self._copied:
            paths = told()
            return lambda: paths
        read = torch.cuda.Event()
        read.record()
        if mends:
            inputs.mask_gate.hold_drafts(inputs.rows_B[:bucket])

        def came() -> list[Path]:
            _await(read)
            watch(read)
            return told()

        return came

    def _read_chains(
        self, slots: Sequence[int], expected: Sequence[tuple[int, int, int]], count: int
    ) -> Callable[[], list[Path]]:
        """The chains of slots as `read_mailbox` reads them, by copies alone: a kernel takes longer to be launched."""
        vocab = self._pool.model.spec.vocab_size
        if self._copied:
            first, end = min(slots), max(slots) + 1
            for copy in self._copies:
                copy(first, end, None)

        def told() -> list[Path]:
            tokens_BK, tags_B3 = self._came[slots, :count].tolist(), self._tags[slots].tolist()
            return [
                _chain(tokens if tuple(tags) == wanted and min(tokens) >= 0 and max(tokens) < vocab else ())
                for tokens, tags, wanted in zip(tokens_BK, tags_B3, expected, strict=True)
            ]

        return told

    def _read_trees(self, bucket: int, width: int) -> Callable[[], list[Path]]:
        pool, inputs = self._pool, self._inputs
        out_BK = self._drafts_N[: bucket * (width - 1)].view(bucket, width - 1)
        read_mailbox(
            pool.mailbox_SK, pool.tag_S3, inputs.rows_B[:bucket], pool.state.epoch_S, inputs.expected_2,
            pool.model.spec.vocab_size, out_BK,
        )  # fmt: skip
        nodes = Nodes.allocate(bucket, width, pool.device)
        pool.read_nodes(inputs.rows_B[:bucket], out_BK, nodes)  # it checks the drafts too
        if not self._copied:
            return lambda: _paths(out_BK, nodes.parents_BK)
        host_BK, parents_BK = (each.to("cpu", non_blocking=True) for each in (out_BK, nodes.parents_BK))
        return lambda: _paths(host_BK, parents_BK)


def _chain(drafts: Sequence[int]) -> Path:
    """Drafts that follow one another, before the first that is absent."""
    return Path([*range(1, len(drafts) + 1)], drafts)


def _paths(drafts_BK: Tensor, parents_BK: Tensor) -> list[Path]:
    paths = []
    for drafts, parents in zip(drafts_BK.tolist(), parents_BK.tolist(), strict=True):
        rows = first_path(parents, drafts)
        paths.append(Path(rows, [drafts[row - 1] for row in rows]))
    return paths


def _await(mark: torch.cuda.Event) -> None:
    """Waits for a mark that is near: whoever sleeps meanwhile finds it late."""
    end = perf_counter() + NEAR_S
    while not mark.query() and perf_counter() < end:
        sleep(0)  # other threads may run
