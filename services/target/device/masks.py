"""Fills the masks of the rows that a rule reaches, before the step that they rule chooses tokens.

The host does it while the step's forward runs: it needs the drafts, and what the round before committed (ADR 0027).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import starmap
from time import perf_counter, sleep
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from services.common.kernels.mailbox import read_mailbox
from services.common.kernels.nodes import Nodes, first_path
from services.target.device.context import Pool
from services.target.device.state import HostSlot, Rows, stop_ids
from services.target.device.verify import RoundInputs
from services.target.device.vocabulary import without

Watch = Callable[[torch.cuda.Event | None], None]
_NEAR_S = 0.002
"""Drafts that take longer are waited for with sleep."""
_MOST_THREADS = 8
"""That make masks at a time."""


class Path(NamedTuple):
    """The drafts of a row that masks are made for, one behind the other, and the rows of the round that they have."""

    rows: Sequence[int] = ()
    tokens: Sequence[int] = ()


class Masks:
    """Static memory on the host, copied to that of the slots; on a CPU it is the slots' own.

    On a GPU the copies have a stream of their own: the step that waits for them is in the way on the usual one.
    """

    def __init__(self, pool: Pool, inputs: RoundInputs) -> None:
        slots = pool.state.slots
        self._pool, self._inputs, self._slots = pool, inputs, slots
        self._made_S = inputs.mask_gate.made_S
        self._stream = torch.cuda.Stream(pool.device) if pool.device.type == "cuda" else None
        self._mask_SWN, self._walked_SK, self._numbers_S = slots.mask_SWN, slots.walked_SK, self._made_S
        self._mended_S, self._mailbox_SK = self._made_S, pool.mailbox_SK
        if self._stream is not None:
            self._mask_SWN, self._walked_SK, self._numbers_S, self._mended_S, self._mailbox_SK = (
                torch.zeros(like.shape, dtype=like.dtype, pin_memory=True)
                for like in (slots.mask_SWN, slots.walked_SK, self._made_S, self._made_S, pool.mailbox_SK)
            )
        # A step on a CPU needs its cores itself, and waits for masks anyway.
        self._threads = None if self._stream is None else ThreadPoolExecutor(_threads(), "masks")
        most = pool.settings.buckets[-1], pool.settings.widest - 1
        self._drafts_N = torch.zeros(most[0] * most[1], dtype=torch.int64, device=pool.device)

    @property
    def beside(self) -> bool:
        """Whether masks can be made while the step runs that waits for them."""
        return self._stream is not None

    def mends(self, seated: Rows) -> bool:
        """Whether a round's drafts can be mended, and no row pays for those of others.

        A step that waits for its drafts takes longer, where steps run beside the host.
        """
        return not self.beside or all(seat.masked for _, seat in seated)

    def offer(
        self, bucket: int, width: int, watch: Watch, nodes: bool = False, mends: bool = False
    ) -> Callable[[], list[Path]]:
        """Enqueues the reading of a round's drafts; returns what waits for them by `watch` and tells each row's.

        Where rows are `nodes` it tells the path of first children: a grammar walks one path. Where it `mends` the step
        behind waits until `mend` was called.
        """
        pool, inputs = self._pool, self._inputs
        if inputs.gate is not None and inputs.gate.serves(bucket):
            inputs.gate.hold(inputs.expected_2)
        out_BK = self._drafts_N[: bucket * (width - 1)].view(bucket, width - 1)
        read_mailbox(
            pool.mailbox_SK, pool.tag_S3, inputs.rows_B[:bucket], pool.state.epoch_S, inputs.expected_2,
            pool.model.spec.vocab_size, out_BK,
        )  # fmt: skip
        parents_BK = self._parents(out_BK, nodes)  # it checks the drafts too
        if self._stream is None:
            return lambda: _paths(out_BK, parents_BK)
        host_BK, told_BK = (each.to("cpu", non_blocking=True) for each in (out_BK, parents_BK))
        read = torch.cuda.Event()
        read.record()
        if mends:
            inputs.mask_gate.hold_drafts(inputs.rows_B[:bucket])

        def told() -> list[Path]:
            _await(read)
            watch(read)
            return _paths(host_BK, told_BK)

        return told

    def _parents(self, drafts_BK: Tensor, trees: bool) -> Tensor:
        """The row that each draft follows."""
        bucket, count = drafts_BK.shape
        if not trees:
            return torch.arange(count).expand(bucket, -1)
        nodes = Nodes.allocate(bucket, count + 1, self._pool.device)
        self._pool.read_nodes(self._inputs.rows_B[:bucket], drafts_BK, nodes)
        return nodes.parents_BK

    def fill(self, held: Rows, drafts: Sequence[Path], width: int) -> None:
        """Fills the masks of `width` rows of some slots, each with its drafts, in the order of the present stream."""
        if self._stream is not None:
            self._stream.synchronize()  # a slot's copies for the request that had it before
        for (slot, seat), offered in zip(held, drafts, strict=True):
            self._fill(slot, seat, offered, width)
            self._copy(slot)

    def make(self, held: Rows, drafts: Sequence[Path], width: int, number: int) -> None:
        """The same for the step of a round that waits for them at its gate; rows that missed a round come first."""
        rows = sorted(zip(held, drafts, strict=True), key=lambda row: -row[0][1].missed)
        made = self._filled([(*seated, offered, width) for seated, offered in rows])
        with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            for (slot, _), _ in rows:
                next(made)
                self._copy(slot)
                self._numbers_S[slot] = number
                if self._stream is not None:
                    self._made_S[slot].copy_(self._numbers_S[slot], non_blocking=True)

    def _filled(self, rows: Sequence[tuple[int, HostSlot, Path, int]]) -> Iterator[None]:
        """Fills the masks of rows, of several at a time where there are threads for them."""
        if self._threads is None or len(rows) == 1:
            return starmap(self._fill, rows)
        return self._threads.map(self._fill, *zip(*rows, strict=True))

    def mend(self, held: Rows, drafts: Sequence[Path], number: int) -> list[Path]:
        """Mends drafts of chains that break a rule, in the mailbox, before their step reads it (ADR 0058).

        Where steps run beside the host, all rows of the round must be `held`: its step waits for this.
        """
        mended = [self._mended(seat, offered) for (_, seat), offered in zip(held, drafts, strict=True)]
        if any(path is not offered for path, offered in zip(mended, drafts, strict=True)):
            self._post([slot for slot, _ in held], mended)
        if self._stream is not None:
            self._mended_S.fill_(number)
            with torch.cuda.stream(self._stream):
                self._inputs.mask_gate.mended_S.copy_(self._mended_S, non_blocking=True)
        return mended

    def _post(self, slots: Sequence[int], paths: Sequence[Path]) -> None:
        """Writes drafts into the mailbox, under the tags that stand there."""
        mailbox_SK = self._pool.mailbox_SK
        post_SK = self._mailbox_SK.numpy()
        for slot, path in zip(slots, paths, strict=True):
            post_SK[slot, : len(path.tokens)] = path.tokens
        if self._stream is not None:
            # One copy is as long as many. No step reads what it brings to other slots, for their tags are old.
            first, end = min(slots), max(slots) + 1
            with torch.cuda.stream(self._stream):
                mailbox_SK[first:end].copy_(self._mailbox_SK[first:end], non_blocking=True)

    def _mended(self, seat: HostSlot, offered: Path) -> Path:
        """The same path where nothing breaks its rule."""
        assert seat.walker is not None, "rows that masks rule have a rule"
        tokens = [*offered.tokens[: seat.most_drafts]]
        mended = seat.walker.mended(tokens)
        return offered if mended == tokens else Path(offered.rows, [*mended, *offered.tokens[len(mended) :]])

    def _copy(self, slot: int) -> None:
        if self._stream is not None:
            self._slots.mask_SWN[slot].copy_(self._mask_SWN[slot], non_blocking=True)
            self._slots.walked_SK[slot].copy_(self._walked_SK[slot], non_blocking=True)

    def _fill(self, slot: int, seat: HostSlot, offered: Path, width: int) -> None:
        assert seat.walker is not None, f"slot {slot} has no rule"
        masks_WN, walked_K = self._mask_SWN[slot, :width].numpy(), self._walked_SK[slot].numpy()
        tokens = offered.tokens[: seat.most_drafts]
        rows = [0, *offered.rows[: seat.most_drafts]]
        path_MN = np.empty((len(rows), masks_WN.shape[1]), masks_WN.dtype)
        allowed = seat.walker.fill(path_MN, tokens)
        walked = len(allowed)
        walked_K[:] = -1
        walked_K[[row - 1 for row in rows[1 : walked + 1]]] = allowed
        stopping = seat.spec.stopping
        early = width if stopping.ignore_eos else min(width, stopping.min_tokens - seat.generated)
        for depth in range(min(early, walked + 1)):
            without(path_MN[depth], stop_ids(seat.spec, self._pool.settings))
        masks_WN[rows[: walked + 1]] = path_MN[: walked + 1]


def _threads() -> int:
    """The library lets go of Python's lock while it makes a mask."""
    return max(1, min(_MOST_THREADS, len(os.sched_getaffinity(0)) // 2))


def _await(mark: torch.cuda.Event) -> None:
    """Waits for a mark that is near: whoever sleeps meanwhile finds it late."""
    end = perf_counter() + _NEAR_S
    while not mark.query() and perf_counter() < end:
        sleep(0)  # other threads may run


def held_rows(rows: Rows) -> Rows:
    """The rows that masks rule."""
    return [(slot, seat) for slot, seat in rows if seat.masked]


def no_drafts(held: Rows) -> list[Path]:
    """Of rows that have none, as first tokens."""
    return [Path() for _ in held]


def _paths(drafts_BK: Tensor, parents_BK: Tensor) -> list[Path]:
    paths = []
    for drafts, parents in zip(drafts_BK.tolist(), parents_BK.tolist(), strict=True):
        rows = first_path(parents, drafts)
        paths.append(Path(rows, [drafts[row - 1] for row in rows]))
    return paths
