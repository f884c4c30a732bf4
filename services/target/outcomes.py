"""Reads what the accept core left on the device and turns it into outcomes, with log-probabilities where asked."""

from collections.abc import Sequence

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


def read_outcomes(
    state: DeviceState, rows: Sequence[int], result: RoundResult, logits_BWV: Tensor, most: int
) -> tuple[Outcome, ...]:
    """One outcome per row of `rows`, in order; moves the host's mirror of each slot.

    `most` caps the alternatives per position. Log-probabilities are those of the model's own distribution, before
    penalties, biases and temperature.
    """
    tokens, counts, accepted, drafted, ends = result.read()
    table = _Logprobs(state, rows, result, logits_BWV, most)
    outcomes: list[Outcome] = []
    for row, slot in enumerate(rows):
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
    """Log-probabilities of a round, computed only when a row asked for them."""

    def __init__(
        self, state: DeviceState, rows: Sequence[int], result: RoundResult, logits_BWV: Tensor, most: int
    ) -> None:
        self._chosen: list[list[float]] = []
        self._ids: list[list[list[int]]] = []
        self._values: list[list[list[float]]] = []
        if any(state.seat(slot).spec.logprobs is not None for slot in rows):
            chosen_BW, ids_BWN, values_BWN = logprobs(logits_BWV, result.tokens_BW, most)
            self._chosen, self._ids, self._values = chosen_BW.tolist(), ids_BWN.tolist(), values_BWN.tolist()

    def row(self, row: int, count: int, asked: int | None) -> tuple[PositionLogprobs, ...] | None:
        """The first `count` positions of a row, with `asked` alternatives; None when it asked for none."""
        if asked is None:
            return None
        chosen, ids, values = self._chosen[row], self._ids[row], self._values[row]
        return tuple(
            PositionLogprobs(chosen[j], tuple(zip(ids[j][:asked], values[j][:asked], strict=True)))
            for j in range(count)
        )
