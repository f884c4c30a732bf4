"""Brings what the accept core left on the device to the host, and turns it into outcomes.

The copies are enqueued behind their round, so that the next one may reuse its buffers before the host has read them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.kernels.accept import End, RoundResult, logprobs
from services.common.sampling import FinishReason
from services.target.plan import Outcome, PositionLogprobs
from services.target.state import DeviceState

ENDS: dict[int, FinishReason | None] = {
    End.NONE: None,
    End.STOP_TOKEN: FinishReason.STOP_TOKEN,
    End.LENGTH: FinishReason.LENGTH,
    End.CONTEXT: FinishReason.CONTEXT,
    End.NON_FINITE: FinishReason.ERROR,
}


@dataclass(frozen=True, slots=True)
class Reading:
    """A round's results on their way to the host; `done` is the mark behind the copies, None on a CPU.

    `logprobs` are those of the model's own distribution, before penalties, biases and temperature: of the chosen tokens
    and the best ids and values of each position, when a row asked for them.
    """

    rows: tuple[int, ...]
    result: RoundResult
    packed_N: Tensor
    logprobs: tuple[Tensor, Tensor, Tensor] | None
    done: torch.cuda.Event | None


def start_reading(
    state: DeviceState, rows: tuple[int, ...], result: RoundResult, logits_BWV: Tensor, most: int
) -> Reading:
    """Enqueues the copies of a round that was just launched; `most` caps the alternatives per position."""
    table = None
    if any(state.seat(slot).spec.logprobs is not None for slot in rows):
        chosen_BW, ids_BWN, values_BWN = logprobs(logits_BWV, result.tokens_BW, most)
        table = (_to_host(chosen_BW), _to_host(ids_BWN), _to_host(values_BWN))
    packed_N = _to_host(result.packed_N)
    done = None
    if result.packed_N.device.type == "cuda":
        done = torch.cuda.Event()
        done.record()
    return Reading(rows, result, packed_N, table, done)


def read_outcomes(state: DeviceState, reading: Reading) -> tuple[Outcome, ...]:
    """One outcome per row, in order, once the reading is done; moves the host's mirror of each slot."""
    tokens, counts, accepted, drafted, ends = reading.result.unpack(reading.packed_N)
    table = _Logprobs(reading.logprobs)
    outcomes: list[Outcome] = []
    for row, slot in enumerate(reading.rows):
        seat, count = state.seat(slot), counts[row]
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
    """A copy in pinned memory that is complete when the stream gets there; a CPU's tensor is returned as it is."""
    return tensor.to("cpu", non_blocking=True)
