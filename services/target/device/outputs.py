"""Copies the results of accept from the device to the host, and makes outcomes of them.

The copies are enqueued before the next step, which may then reuse the buffers before the host has read the copies.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from time import perf_counter
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from services.common.device.graph import inferring
from services.common.device.staging import to_host
from services.common.kernels.accept import End, RoundResult, logprobs
from services.common.request.sampling import FinishReason
from services.target.core.plan import Outcome, PositionLogprobs, PromptScores
from services.target.device.scoring import Scored
from services.target.device.state import Rows

ENDS: dict[int, FinishReason | None] = {
    End.NONE: None,
    End.STOP_TOKEN: FinishReason.STOP_TOKEN,
    End.LENGTH: FinishReason.LENGTH,
    End.CONTEXT: FinishReason.CONTEXT,
    End.NON_FINITE: FinishReason.ERROR,
}


class _Copies(NamedTuple):
    """Results of one step on their way to the host.

    `logprobs` are those of the model's own distribution, before penalties, biases and temperature: of the chosen tokens
    and the best ids and values of each position, when a row asked for them.
    """

    rows: Rows
    result: RoundResult
    packed_N: Tensor
    logprobs: tuple[Tensor, Tensor, Tensor] | None


class Step(Protocol):
    """What a step leaves on the device once it has run."""

    result: RoundResult
    logits_BWV: Tensor


class Landing:
    """Where a GPU's round leaves its results on the host, and the mark behind them; some rounds later it is another's.

    Pinned memory that is taken anew each time costs calls of the driver, which say when it may be given again.
    """

    def __init__(self, numbers: int) -> None:
        """Holds so many numbers of a round, in memory that the device copies into."""
        self.done = torch.cuda.Event()
        self._numbers_N = torch.empty(numbers, dtype=torch.int64, pin_memory=True)

    def take(self, packed_N: Tensor) -> Tensor:
        """Enqueues the copy of a step's results and returns it."""
        return self._numbers_N[: len(packed_N)].copy_(packed_N, non_blocking=True)


class RoundOutput:
    """The results of a round: first tokens and the rows of its verify. Times are in microseconds."""

    def __init__(self, device: torch.device, most_logprobs: int, landing: Landing | None = None) -> None:
        """`most_logprobs` caps the alternatives per position; `landing` is for a GPU, and may have been another's."""
        self._device, self._most, self._landing = device, most_logprobs, landing
        self._copies: list[_Copies] = []
        self._left: tuple[Rows, Step] | None = None
        self._wait: Callable[[torch.cuda.Event | None], None] = lambda done: None
        self._fetched = False
        self.decodes = False
        """Whether rows decode in the round, beside prompts or behind them."""
        self._make: Callable[[], Callable[[], None] | None] | None = None
        self._settle: Callable[[], None] | None = None
        self.scores: list[PromptScores] = []
        """Of prompts, once the round has landed."""
        self._scored: list[Scored] = []
        self.done: torch.cuda.Event | None = None
        """The mark on the stream behind the round and its copies; None on a CPU, where both are already done."""
        self.prepare_us = self.prefill_us = self.verify_us = self.host_us = 0.0

    def copy(
        self, rows: Rows, result: RoundResult, logits_BWV: Tensor, take: Callable[[Tensor], Tensor] = to_host
    ) -> None:
        """Enqueues the copies of a step's results at once."""
        table = None
        if [seat for _, seat in rows if seat.spec.logprobs is not None]:
            found = logprobs(logits_BWV, result.by_row(result.tokens_BW), self._most)
            chosen_BW, ids_BWN, values_BWN = (to_host(result.by_depth(each)) for each in found)
            table = (chosen_BW, ids_BWN, values_BWN)
        self._copies.append(_Copies(rows, result, take(result.packed_N), table))

    def leave(self, rows: Rows, step: Step) -> None:
        """Notes results that stay on the device until `fetch`."""
        self._left, self.decodes = (rows, step), True

    def later(self, make: Callable[[], Callable[[], None] | None]) -> None:
        """Notes what `rule` does; what it returns is done when the round is landed."""
        self._make = make

    @inferring
    def rule(self) -> None:
        """Makes the masks that rows of the round wait for, once; all rounds before it must have landed."""
        make, self._make = self._make, None
        if make is not None:
            self._settle = make()

    @inferring
    def _make_rest(self) -> None:
        settle, self._settle = self._settle, None
        if settle is not None:
            settle()

    def score(self, scored: Sequence[Scored]) -> None:
        """Notes scores of prompts on their way to the host."""
        self._scored += scored

    def launched(self, launch_us: float, wait: Callable[[torch.cuda.Event | None], None]) -> None:
        """Notes that the round is enqueued; `wait` takes the mark and returns once the device has passed it."""
        self.verify_us, self._wait = launch_us, wait

    def fetch(self) -> None:
        """Enqueues the copies of what `leave` noted, before the next step; a second call does nothing.

        It is separate from the launch, so that no copy stands between a verify and the flag for the drafter.
        """
        if self._fetched:
            return
        self._fetched = True
        if self._left is not None:
            rows, step = self._left
            self.copy(rows, step.result, step.logits_BWV, Tensor.clone if self._landing is None else self._landing.take)
        if self._landing is not None:
            self.done = self._landing.done
            self.done.record()

    def land(self) -> tuple[Outcome, ...]:
        """Waits for the round and returns its outcomes; moves the host's mirror of each slot."""
        start = perf_counter()
        if self._make is not None:
            self.rule()
        if self._settle is not None:
            self._make_rest()
        if not self._fetched:
            self.fetch()
        self._wait(self.done)
        waited = perf_counter()
        if self._scored:
            self.scores = [one.told() for one in self._scored]
        outcomes: list[Outcome] = []
        for copies in self._copies:
            outcomes += _outcomes(copies)
        self.verify_us += (waited - start) * 1e6
        if not self.decodes:  # the wait was for prompts
            self.prefill_us, self.verify_us = self.prefill_us + self.verify_us, 0.0
        self.host_us = (perf_counter() - waited) * 1e6
        return tuple(outcomes)


def _outcomes(copies: _Copies) -> list[Outcome]:
    """One outcome per row, in order; the copies must be complete."""
    result, rows = copies.result, copies.rows
    bucket, width = result.tokens_BW.shape
    flat: list[int] = copies.packed_N[: bucket * (width + 4)].tolist()
    first, second, third, fourth, last = range(bucket * width, bucket * (width + 5), bucket)
    counts, accepted, drafted, ends = flat[first:second], flat[second:third], flat[third:fourth], flat[fourth:last]
    table = None if copies.logprobs is None else _Logprobs(copies.logprobs)
    if result.path_BW is None:
        trees: Iterable[_Told] = repeat(_CHAIN, len(rows))
    else:
        nodes = copies.packed_N.numpy()[bucket * (width + 4) :].astype(np.uint8).tobytes()
        trees = _trees(nodes, bucket, width, accepted[: len(rows)], drafted)
    outcomes: list[Outcome] = []
    of_rows = zip(rows, trees, range(0, bucket * width, width), counts, accepted, drafted, ends, strict=False)
    for (slot, seat), tree, begin, count, right, known, end in of_rows:
        chosen = tuple(flat[begin : begin + count])
        seat.commit(chosen)
        logprobs = None if table is None else table.row(begin // width, count, seat.spec.logprobs)
        outcomes.append(Outcome(slot, seat.epoch, chosen, right, known, ENDS[end], logprobs, *tree))
    return outcomes


_Told: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""What a row's tree says: path, trunk and children, as in `Outcome`; nothing of a chain."""
_CHAIN: _Told = ((), (), ())


def _trees(nodes: bytes, bucket: int, width: int, accepted: Sequence[int], drafted: Sequence[int]) -> list[_Told]:
    """What trees say whose paths and parents are `nodes`, a byte each: bytes are counted and found without a loop."""
    told = list[_Told]()
    for row, right in enumerate(accepted):
        begin, known = bucket * width + row * (width - 1), drafted[row]
        path = nodes[row * width + 1 : row * width + 1 + right]
        children = [nodes.count(nodes[begin + node - 1], begin, begin + node) for node in path]
        second = nodes.find(1, begin + 1, begin + known) + 1 - begin
        trunk = (1, second) if second > 0 else (1,) if known else ()
        told.append((tuple(path), trunk, tuple(children)))
    return told


class _Logprobs:
    """Log-probabilities of a round as plain numbers."""

    def __init__(self, tables: Sequence[Tensor]) -> None:
        self._chosen: list[list[float]]
        self._ids: list[list[list[int]]]
        self._values: list[list[list[float]]]
        self._chosen, self._ids, self._values = (table.tolist() for table in tables)

    def row(self, row: int, count: int, asked: int | None) -> tuple[PositionLogprobs, ...] | None:
        """The first `count` positions of a row, with `asked` alternatives; None when it asked for none."""
        if asked is None:
            return None
        chosen, ids, values = self._chosen[row], self._ids[row], self._values[row]
        return tuple(
            PositionLogprobs(chosen[j], tuple(zip(ids[j][:asked], values[j][:asked], strict=True)))
            for j in range(count)
        )
