"""Fills the masks of the rows that a rule reaches, before the step that they rule chooses tokens.

The host does it while the step's forward runs: it needs the drafts, and what the round before committed (ADR 0027).
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
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
        if self._stream is not None:
            self._mask_SWN, self._walked_SK, self._numbers_S = (
                torch.zeros(of_slots.shape, dtype=of_slots.dtype, pin_memory=True)
                for of_slots in (slots.mask_SWN, slots.walked_SK, self._made_S)
            )
        most = pool.settings.buckets[-1], pool.settings.widest - 1
        self._drafts_N = torch.zeros(most[0] * most[1], dtype=torch.int64, device=pool.device)

    @property
    def beside(self) -> bool:
        """Whether masks can be made while the step runs that waits for them."""
        return self._stream is not None

    def offer(self, bucket: int, width: int, watch: Watch, nodes: bool = False) -> Callable[[], list[Path]]:
        """Enqueues the reading of a round's drafts; returns what waits for them by `watch` and tells each row's.

        Where rows are `nodes` it tells the path of first children: a grammar walks one path.
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

        def told() -> list[Path]:
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

    def make(self, held: Rows, drafts: Sequence[Path], width: int, number: int, chains: bool = False) -> None:
        """The same for the step of a round that waits for them at its gate; rows that missed a round come first.

        Where the step runs behind it, drafts in `chains` that break a rule are mended in the mailbox (ADR 0058).
        """
        mend = chains and not self.beside
        with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            for (slot, seat), offered in sorted(zip(held, drafts, strict=True), key=lambda row: -row[0][1].missed):
                self._fill(slot, seat, offered, width, mend)
                self._copy(slot)
                self._numbers_S[slot] = number
                if self._stream is not None:
                    self._made_S[slot].copy_(self._numbers_S[slot], non_blocking=True)

    def _copy(self, slot: int) -> None:
        if self._stream is not None:
            self._slots.mask_SWN[slot].copy_(self._mask_SWN[slot], non_blocking=True)
            self._slots.walked_SK[slot].copy_(self._walked_SK[slot], non_blocking=True)

    def _fill(self, slot: int, seat: HostSlot, offered: Path, width: int, mend: bool = False) -> None:
        assert seat.walker is not None, f"slot {slot} has no rule"
        masks_WN, walked_K = self._mask_SWN[slot, :width].numpy(), self._walked_SK[slot].numpy()
        tokens = offered.tokens[: seat.most_drafts]
        rows = [0, *offered.rows[: seat.most_drafts]]
        path_MN = np.empty((len(rows), masks_WN.shape[1]), masks_WN.dtype)
        allowed = seat.walker.fill(path_MN, tokens, mend)
        walked = len(allowed)
        walked_K[:] = -1
        walked_K[[row - 1 for row in rows[1 : walked + 1]]] = allowed
        if mend and allowed != [*tokens[:walked]]:
            self._pool.mailbox_SK[slot, :walked] = torch.tensor(allowed, dtype=self._pool.mailbox_SK.dtype)
        stopping = seat.spec.stopping
        early = width if stopping.ignore_eos else min(width, stopping.min_tokens - seat.generated)
        for depth in range(min(early, walked + 1)):
            without(path_MN[depth], stop_ids(seat.spec, self._pool.settings))
        masks_WN[rows[: walked + 1]] = path_MN[: walked + 1]


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
