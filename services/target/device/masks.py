"""Fills the masks of the rows that a grammar rules, before the step that chooses their tokens.

The host does it between two steps: it needs the drafts, and what the round before committed (ADR 0027).
"""

from collections.abc import Callable, Sequence

import torch

from services.common.kernels.read_mailbox import read_mailbox
from services.target.device.context import Pool
from services.target.device.outputs import Rows
from services.target.device.state import HostSlot, stop_ids
from services.target.device.verify import RoundInputs
from services.target.device.walker import without

Watch = Callable[[torch.cuda.Event | None], None]


class Masks:
    """Static memory on the host, copied to that of the slots; on a CPU it is the slots' own."""

    def __init__(self, pool: Pool, inputs: RoundInputs) -> None:
        slots = pool.state.slots
        self._pool, self._inputs, self._slots = pool, inputs, slots
        self._on_gpu = pool.device.type == "cuda"
        self._mask_SWN, self._walked_SK = slots.mask_SWN, slots.walked_SK
        if self._on_gpu:
            self._mask_SWN = torch.zeros(slots.mask_SWN.shape, dtype=torch.int32, pin_memory=True)
            self._walked_SK = torch.zeros(slots.walked_SK.shape, dtype=torch.int64, pin_memory=True)
        most = pool.settings.buckets[-1], pool.settings.widths[-1] - 1
        self._drafts_N = torch.zeros(most[0] * most[1], dtype=torch.int64, device=pool.device)

    def drafts(self, bucket: int, width: int, watch: Watch) -> list[list[int]]:
        """The drafts of a round's rows, [bucket][width - 1], -1 where there are none; waits for them by `watch`."""
        pool, inputs = self._pool, self._inputs
        if inputs.gate is not None and inputs.gate.serves(bucket):
            inputs.gate.hold(inputs.expected_2)
        out_BK = self._drafts_N[: bucket * (width - 1)].view(bucket, width - 1)
        read_mailbox(
            pool.mailbox_SK, pool.tag_S3, inputs.rows_B[:bucket], pool.state.epoch_S, inputs.expected_2,
            pool.model.spec.vocab_size, out_BK,
        )  # fmt: skip
        if not self._on_gpu:
            return [list(row) for row in out_BK.tolist()]
        host_BK = out_BK.to("cpu", non_blocking=True)
        read = torch.cuda.Event()
        read.record()
        watch(read)
        return [list(row) for row in host_BK.tolist()]

    def fill(self, held: Rows, drafts: Sequence[Sequence[int]], width: int) -> None:
        """Fills the masks of `width` rows of some slots, each with its drafts; they are enqueued when it returns."""
        for (slot, seat), offered in zip(held, drafts, strict=True):
            self._fill(slot, seat, offered, width)
            if self._on_gpu:
                self._slots.mask_SWN[slot].copy_(self._mask_SWN[slot], non_blocking=True)
                self._slots.walked_SK[slot].copy_(self._walked_SK[slot], non_blocking=True)

    def _fill(self, slot: int, seat: HostSlot, drafts: Sequence[int], width: int) -> None:
        assert seat.walker is not None, f"slot {slot} has no grammar"
        masks_WN, walked_K = self._mask_SWN[slot, :width].numpy(), self._walked_SK[slot].numpy()
        known = next((index for index, draft in enumerate(drafts) if draft < 0), len(drafts))
        walked = seat.walker.fill(masks_WN, drafts[: min(known, seat.most_drafts)])
        walked_K[:] = -1
        walked_K[:walked] = drafts[:walked]
        stopping = seat.spec.stopping
        early = width if stopping.ignore_eos else min(width, stopping.min_tokens - seat.generated)
        for row in range(min(early, walked + 1)):
            without(masks_WN[row], stop_ids(seat.spec, self._pool.settings))


def held_rows(rows: Rows) -> Rows:
    """The rows that a grammar rules."""
    return [(slot, seat) for slot, seat in rows if seat.walker is not None]


def no_drafts(held: Rows) -> list[Sequence[int]]:
    """Of rows that have none, as first tokens."""
    return [() for _ in held]
