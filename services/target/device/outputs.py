"""Brings what the accept core left on the device to the host, and turns it into outcomes.

The copies are enqueued before the next step, so that it may reuse the buffers before the host has read them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.kernels.accept import End, RoundResult, logprobs
from services.common.request.sampling import FinishReason
from services.target.core.plan import Outcome, PositionLogprobs
from services.target.device.state import DeviceState, Seat

ENDS: dict[int, FinishReason | None] = {
    End.NONE: None,
    End.STOP_TOKEN: FinishReason.STOP_TOKEN,
    End.LENGTH: FinishReason.LENGTH,
    End.CONTEXT: FinishReason.CONTEXT,
    End.NON_FINITE: FinishReason.ERROR,
}


@dataclass(frozen=True, slots=True)
class Reading:
    """Results on their way to the host, of a verify or of a first token; the round's mark stands behind the copies.

    `rows` are slots and who sat there: they may have changed hands when the host reads. `logprobs` are those of the
    model's own distribution, before penalties, biases and temperature: of the chosen tokens and the best ids and values
    of each position, when a row asked for them.
    """

    rows: tuple[tuple[int, Seat], ...]
    result: RoundResult
    packed_N: Tensor
    logprobs: tuple[Tensor, Tensor, Tensor] | None


@dataclass(frozen=True, slots=True)
class Left:
    """What a step left on the device, there until the next step runs. `rows` are slots and who sat there."""

    rows: tuple[tuple[int, Seat], ...]
    result: RoundResult
    logits_BWV: Tensor


def leave(state: DeviceState, rows: tuple[int, ...], result: RoundResult, logits_BWV: Tensor) -> Left:
    """Notes who sits in the rows of a step that was just launched."""
    return Left(tuple((slot, state.seat(slot)) for slot in rows), result, logits_BWV)


def start_reading(left: Left, most: int) -> Reading:
    """Enqueues the copies; `most` caps the alternatives per position."""
    result, table = left.result, None
    if any(seat.spec.logprobs is not None for _, seat in left.rows):
        chosen_BW, ids_BWN, values_BWN = logprobs(left.logits_BWV, result.tokens_BW, most)
        table = (_to_host(chosen_BW), _to_host(ids_BWN), _to_host(values_BWN))
    return Reading(left.rows, result, _to_host(result.packed_N), table)


class Results:
    """What a round brought: first tokens, whose copies are on their way, and what the verify left on the device."""

    def __init__(self, first: Sequence[Reading] = (), verify: Left | None = None, most: int = 0) -> None:
        self._readings = list(first)
        self._verify = verify
        self._most = most
        self._fetched = False
        self.done: torch.cuda.Event | None = None
        """Stands on the stream behind the round and its copies; None on a CPU, where they are done."""

    @torch.inference_mode()
    def fetch(self, device: torch.device) -> None:
        """Enqueues the copies, before the next step; doing it again is harmless.

        Apart from the launch, so that they need not stand between a verify and the drafter's flag.
        """
        if self._fetched:
            return
        self._fetched = True
        if self._verify is not None:
            self._readings.append(start_reading(self._verify, self._most))
        if device.type == "cuda":
            self.done = torch.cuda.Event()
            self.done.record()

    def read(self) -> tuple[Outcome, ...]:
        """Outcomes of all that were fetched, once the mark is passed."""
        return tuple(outcome for reading in self._readings for outcome in read_outcomes(reading))


def read_outcomes(reading: Reading) -> tuple[Outcome, ...]:
    """One outcome per row, in order, once the copies are there; moves the host's mirror of each slot."""
    tokens, counts, accepted, drafted, ends = reading.result.unpack(reading.packed_N)
    table = _Logprobs(reading.logprobs)
    outcomes: list[Outcome] = []
    for row, (slot, seat) in enumerate(reading.rows):
        count = counts[row]
        seat.length += count
        seat.generated += count
        outcome = Outcome(
            slot=slot,
            epoch=seat.epoch,
            tokens=tuple(tokens[row][:count]),
            accepted=accepted[row],
            drafted=drafted[row],
            end=ENDS[ends[row]],
            logprobs=table.row(row, count, seat.spec.logprobs),
        )
        outcomes.append(outcome)
    return tuple(outcomes)


class _Logprobs:
    """Log-probabilities of a round as plain numbers; empty when no row asked for them."""

    def __init__(self, tables: Sequence[Tensor] | None) -> None:
        self._chosen: list[list[float]] = []
        self._ids: list[list[list[int]]] = []
        self._values: list[list[list[float]]] = []
        if tables is not None:
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


def _to_host(tensor: Tensor) -> Tensor:
    """A copy, in pinned memory if it comes from a GPU, that is complete when the stream gets there."""
    return tensor.to("cpu", non_blocking=True, copy=True)
