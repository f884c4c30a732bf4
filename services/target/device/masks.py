"""Fills the masks of the rows that a rule reaches, before the step that they rule chooses tokens.

The host does it while the step's forward runs: it needs the drafts, and what the round before committed (ADR 0027).
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter, sleep
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from services.common.kernels.accept import LAST_BITS
from services.common.pair.arena.flags import places_setter, row_copier
from services.target.device.context import Pool
from services.target.device.drafted import NEAR_S, Path
from services.target.device.state import HostSlot, Rows, stop_ids
from services.target.device.verify import RoundInputs
from services.target.device.vocabulary import with_any, without
from services.target.device.walker import Walker

_MOST_MENDED = 1
"""Rows of a round that are mended on a GPU: four wait there for longer than what their drafts bring (ADR 0058)."""
_MASKS_US = 1000.0
"""That masks of a request take, behind some ten drafts."""
_MOST_THREADS = 8
"""That make masks at a time."""


Array = NDArray[Any]
Row = tuple[int, HostSlot, Path]


class Masks:
    """Static memory on the host, copied to that of the slots; on a CPU it is the slots' own.

    On a GPU the copies have a stream of their own: the step that waits for them is in the way on the usual one.
    """

    def __init__(self, pool: Pool, inputs: RoundInputs) -> None:
        slots = pool.state.slots
        self._pool, self._inputs, self._slots = pool, inputs, slots
        self._stream = torch.cuda.Stream(pool.device) if pool.device.type == "cuda" else None
        self._mask_SWN, self._walked_SK, self._mailbox_SK = slots.mask_SWN, slots.walked_SK, pool.mailbox_SK
        if self._stream is not None:
            self._mask_SWN, self._walked_SK, self._mailbox_SK = (
                torch.zeros(like.shape, dtype=like.dtype, pin_memory=True)
                for like in (slots.mask_SWN, slots.walked_SK, pool.mailbox_SK)
            )
        self._view()
        # A step on a CPU needs its cores itself, and waits for masks anyway.
        self._threads = None if self._stream is None else _pool()
        self._room_BWN = np.empty((pool.settings.buckets[-1], *slots.mask_SWN.shape[1:]), np.int32)

    def _view(self) -> None:
        """The host's memory as arrays: to take a place of a tensor costs more than to write there."""
        self._masks, self._walked = self._mask_SWN.numpy(), self._walked_SK.numpy()
        slots, gate = self._slots, self._inputs.mask_gate
        if self._stream is not None:
            self._copies = [row_copier(self._mask_SWN, slots.mask_SWN), row_copier(self._walked_SK, slots.walked_SK)]
            self._say_made, self._say_mended = places_setter(gate.made_S), places_setter(gate.mended_S)
            self._post_rows = row_copier(self._mailbox_SK, self._pool.mailbox_SK)
        told_SW = gate.told_SW
        self._words_SW2 = told_SW.numpy().view(np.int32).reshape(*told_SW.shape, 2)

    @property
    def beside(self) -> bool:
        """Whether masks can be made while the step runs that waits for them."""
        return self._stream is not None

    def mends(self, seated: Rows) -> bool:
        """Whether a round's drafts can be mended, and no row pays for those of others.

        A step that waits for its drafts takes longer, where steps run beside the host.
        """
        return not self.beside or (len(seated) <= _MOST_MENDED and all(seat.masked for _, seat in seated))

    def fill(self, held: Rows, drafts: Sequence[Path], width: int) -> None:
        """Fills the masks of `width` rows of some slots, each with its drafts, in the order of the present stream."""
        if self._stream is not None:
            self._stream.synchronize()  # a slot's copies for the request that had it before
        self._fill([(*seated, offered) for seated, offered in zip(held, drafts, strict=True)], width)
        self._copy([slot for slot, _ in held], None)

    def make(self, held: Rows, drafts: Sequence[Path], width: int, number: int) -> None:
        """The same for the step of a round that waits for them at its gate; rows that missed a round come first."""
        if not held:
            return
        rows = _by_misses(held, drafts)
        # Those that threads fill have their masks at one time, others one behind the other.
        for some in [rows] if self._at_once(rows) else [[row] for row in rows]:
            self._fill(some, width)
            self._tell([slot for slot, *_ in some], number)

    def run_beside(self, run: Callable[[], object]) -> torch.cuda.Event:
        """Launches a step that waits for masks; returns the mark behind it."""
        run()
        ran = torch.cuda.Event()
        ran.record()
        return ran

    def parted(self, rows: Rows, peeks: bool, forward_us: float) -> tuple[Rows, Rows]:
        """Rows whose masks are made at once, and those that wait for what they choose without one.

        Most rows choose what their rule allows, and a mask of the choice is right for them: the best of all tokens
        is the best of some. Whether a token is allowed takes a hundredth of what all that are allowed take. But masks
        that a forward hides cost nobody anything.
        """
        if not peeks or (self.beside and len(rows) * _MASKS_US < forward_us):
            return rows, []
        now, later = list[tuple[int, HostSlot]](), list[tuple[int, HostSlot]]()
        for row in rows:
            (later if row[1].unfiltered and _walker(row[1]).alone else now).append(row)
        return now, later

    def settle(self, held: Rows, drafts: Sequence[Path], width: int, number: int, ran: torch.cuda.Event | None) -> None:
        """Makes the masks of rows whose step has told what they choose without one; nothing if the step is over.

        What needs no choice is known before it asks, while the forward runs. A slot that is another request's by now
        has no masks: nobody reads its row.
        """
        rows = _by_misses(held, drafts)
        slots = [slot for slot, _, _ in rows]
        choices_RW = self._told(slots, width, number)
        if choices_RW is None:
            self._walk_ahead(rows)
            choices_RW = self._choices(slots, width, number, ran)
        if choices_RW is None:
            return
        untold, since = list[int](), perf_counter()
        for row, choices in zip(rows, choices_RW, strict=True):
            if self._pool.state.holds(*row[:2]):
                self._choose(row, choices, width)
            untold.append(row[0])
            if perf_counter() - since > NEAR_S:
                self._tell(untold, number)
                untold, since = [], perf_counter()
        if untold:
            self._tell(untold, number)

    def _walk_ahead(self, rows: Sequence[Row]) -> None:
        for _, seat, offered in rows:
            _walker(seat).ahead(offered.tokens[: seat.spec.speculation.cap])

    def _choices(
        self, slots: Sequence[int], width: int, number: int, ran: torch.cuda.Event | None
    ) -> list[list[int]] | None:
        """What the rows of slots choose without masks; None where the step did not wait for who asks."""
        while True:
            over = ran is None or ran.query()
            choices = self._told(slots, width, number)
            if choices is not None or over:
                return choices
            sleep(0)  # other threads may run

    def _told(self, slots: Sequence[int], width: int, number: int) -> list[list[int]] | None:
        """The same if the step has told it already."""
        told_RW2 = self._words_SW2[slots, :width]
        if not (told_RW2[..., 1] == number & LAST_BITS).all():
            return None
        choices: list[list[int]] = told_RW2[..., 0].tolist()
        return choices

    def _choose(self, row: Row, choices: Sequence[int], width: int) -> None:
        """Writes the masks of a row that are not masks of its choices alone, and those."""
        slot, seat, offered = row
        drafts = offered.tokens[: seat.spec.speculation.cap]
        # Rows of a chain have their masks where they are read, those of a tree get theirs from a path's.
        there = not drafts or offered.rows[len(drafts) - 1] == len(drafts)
        path_MN = (self._masks[slot] if there else self._room_BWN[0])[: len(drafts) + 1]
        told = choices if there else _at_rows(choices, offered)
        allowed = _walker(seat).choose(path_MN, drafts, told, *self._early(seat, width))
        if allowed is None:
            self._place(row, path_MN, _walker(seat).fill(path_MN, drafts), width, there)
        else:
            self._put(row, path_MN, allowed, there)

    def _early(self, seat: HostSlot, width: int) -> tuple[int, Sequence[int]]:
        """Rows at which it is too early for stop tokens, and these."""
        stopping = seat.spec.stopping
        early = width if stopping.ignore_eos else max(0, min(width, stopping.min_tokens - seat.generated))
        return early, stop_ids(seat.spec, self._pool.settings) if early else ()

    def _at_once(self, rows: Sequence[Row]) -> bool:
        return self._threads is not None and len(rows) > 1

    def _tell(self, slots: Sequence[int], number: int) -> None:
        """Copies masks, and behind them sets the words that say so."""
        if self._stream is None:
            self._inputs.mask_gate.made_S[list(slots)] = number
            return
        stream = self._stream.cuda_stream
        self._copy(slots, stream)
        self._say_made(slots, number, stream)

    def _copy(self, slots: Sequence[int], stream: int | None) -> None:
        """One copy is as long as many; slots in between get theirs again before a word says that they have them."""
        if self._stream is not None:
            for copy in self._copies:
                copy(min(slots), max(slots) + 1, stream)

    def _fill(self, rows: Sequence[Row], width: int) -> None:
        """Fills masks of rows; those of several at a time, where a grammar alone rules them."""
        tokens = [offered.tokens[: seat.spec.speculation.cap] for _, seat, offered in rows]
        paths = [self._room_BWN[index, : len(drafts) + 1] for index, drafts in enumerate(tokens)]
        work = [_walker(seat).fill for _, seat, _ in rows], paths, tokens
        fill = map if self._threads is None or not self._at_once(rows) else self._threads.map
        for row, path_MN, allowed in zip(rows, paths, fill(_call, *work), strict=True):
            self._place(row, path_MN, allowed, width)

    def _place(self, row: Row, path_MN: Array, allowed: Sequence[int], width: int, there: bool = False) -> None:
        """Puts the masks of a path where its rows have theirs, unless they are there; and the drafts that it takes."""
        early, stops = self._early(row[1], width)
        if early:
            for mask_N in with_any(path_MN[: min(early, len(allowed) + 1)], stops):
                without(mask_N, stops)
        self._put(row, path_MN, allowed, there)

    def _put(self, row: Row, path_MN: Array, allowed: Sequence[int], there: bool) -> None:
        """The same of masks in which no stop token comes too early."""
        slot, seat, offered = row
        walked_K, walked = self._walked[slot], len(allowed)
        walked_K[:] = -1
        if there:
            walked_K[:walked] = allowed
            return
        rows = [0, *offered.rows[: seat.spec.speculation.cap]][: walked + 1]
        walked_K[[row - 1 for row in rows[1:]]] = allowed
        # A copy by places takes ten times as long.
        self._masks[slot][slice(walked + 1) if rows[-1] == walked else rows] = path_MN[: walked + 1]

    def mend(self, held: Rows, drafts: Sequence[Path], number: int) -> list[Path]:
        """Mends drafts of chains that break a rule, in the mailbox, before their step reads it (ADR 0058).

        Where steps run beside the host, all rows of the round must be `held`: its step waits for this.
        """
        mended = [self._mended(seat, offered) for (_, seat), offered in zip(held, drafts, strict=True)]
        if any(path is not offered for path, offered in zip(mended, drafts, strict=True)):
            self._post([slot for slot, _ in held], mended)
        if self._stream is not None:
            self._say_mended([slot for slot, _ in held], number, self._stream.cuda_stream)
        return mended

    def _post(self, slots: Sequence[int], paths: Sequence[Path]) -> None:
        """Writes drafts into the mailbox, under the tags that stand there."""
        post_SK = self._mailbox_SK.numpy()
        for slot, path in zip(slots, paths, strict=True):
            post_SK[slot, : len(path.tokens)] = path.tokens
        if self._stream is not None:
            # One copy is as long as many. No step reads what it brings to other slots, for their tags are old.
            self._post_rows(min(slots), max(slots) + 1, self._stream.cuda_stream)

    def _mended(self, seat: HostSlot, offered: Path) -> Path:
        """The same path where nothing breaks its rule."""
        tokens = [*offered.tokens[: seat.spec.speculation.cap]]
        mended = _walker(seat).mended(tokens)
        return offered if mended == tokens else Path(offered.rows, [*mended, *offered.tokens[len(mended) :]])


def mask_threads() -> int:
    """How many requests are masked at a time."""
    return max(1, min(_MOST_THREADS, len(os.sched_getaffinity(0)) // 2))


def _pool() -> ThreadPoolExecutor:
    """Threads on any core, also where the engine's has one of its own.

    Each makes all masks of a request by one call that lets go of Python's lock: threads that wait for it between any
    two masks are slower than one. The library's own did not run side by side.
    """
    cores = os.sched_getaffinity(0)
    return ThreadPoolExecutor(mask_threads(), "masks", initializer=partial(os.sched_setaffinity, 0, cores))


def _call(fill: Callable[[Array, Sequence[int]], list[int]], path_MN: Array, drafts: Sequence[int]) -> list[int]:
    return fill(path_MN, drafts)


def _walker(seat: HostSlot) -> Walker:
    assert seat.walker is not None, "rows that masks rule have a rule"
    return seat.walker


def held_rows(rows: Rows) -> Rows:
    """The rows that masks rule."""
    return [(slot, seat) for slot, seat in rows if seat.masked]


def no_drafts(held: Rows) -> list[Path]:
    """Of rows that have none, as first tokens."""
    return [Path() for _ in held]


def _at_rows(choices: Sequence[int], offered: Path) -> list[int]:
    """Of the choices of all rows those of the anchor and of a path behind it."""
    return [choices[0], *(choices[row] for row in offered.rows)]


def _by_misses(held: Rows, drafts: Sequence[Path]) -> list[Row]:
    """Rows of which those that missed most rounds come first."""
    rows = [(*seated, offered) for seated, offered in zip(held, drafts, strict=True)]
    return sorted(rows, key=lambda row: -row[1].missed)
