"""Slots, their epochs and the requests that hold them: in prefill by order, decoding by number.

Also the rule that cuts the tokens that a round chose at a request's end. The device applies the same one; the host
applies it again, so that no runner can overrun a request.
"""

from bisect import insort
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from services.common.request.sampling import FinishReason, StopParams
from services.target.core.plan import Chunk, Plan
from services.target.core.request import Request, State


class Resolved(NamedTuple):
    """How many tokens are kept, and why the request ends after them; None when it goes on."""

    kept: int
    end: FinishReason | None


def stop_ids(stopping: StopParams, eos: frozenset[int]) -> frozenset[int]:
    """Token ids that end a request."""
    ids = frozenset(stopping.stop_token_ids)
    return ids if stopping.ignore_eos else ids | eos


def apply_stop_conditions(
    tokens: Sequence[int],
    generated: int,
    stopping: StopParams,
    ends: frozenset[int],
    room: int,
) -> Resolved:
    """Cuts `tokens`, chosen after `generated` output tokens, with space for `room` more in the context.

    A stop token is kept as the last one; before `min_tokens` it does not end the request. When several reasons hold at
    one position, a stop token counts before length, and length before context.
    """
    most = min(stopping.max_tokens - generated, room, len(tokens))
    if not ends.isdisjoint(tokens):  # else no token needs a look, as in nearly all rounds
        for index in range(most):
            if tokens[index] in ends and generated + index + 1 > stopping.min_tokens:
                return Resolved(index + 1, FinishReason.STOP_TOKEN)
    if generated + most >= stopping.max_tokens:
        return Resolved(most, FinishReason.LENGTH)
    if most >= room:
        return Resolved(most, FinishReason.CONTEXT)
    return Resolved(most, None)


class SlotTable:
    """The `slots` of running requests, as `Plan` defines them; `rows` are those that decode.

    `free` are the slots without a request, and `prefilling` the requests whose prompt is not computed yet, by order.
    `drawing` requests draw their tokens.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.rows: list[int] = []
        self._seats: list[Request | None] = [None] * slots
        self._epochs = [0] * slots
        self.free = list(range(slots))
        self.prefilling: list[tuple[tuple[float, int], Request]] = []
        self.released: list[int] = []
        self.drawing = 0

    @property
    def prefill_left(self) -> int:
        """Prompt tokens of running requests that are not planned yet."""
        left = 0
        for _, request in self.prefilling:
            left += request.prefill_to - request.computed
        return left

    def running(self) -> list[Request]:
        """Requests that hold a slot."""
        return [request for request in self._seats if request is not None]

    def growing(self) -> int:
        """How many of `rows` get blocks as they grow."""
        return sum(request.grows for _, request in self.decoding())

    def decoding(self) -> list[tuple[int, Request]]:
        """Slots in `rows` with their requests."""
        return [(slot, request) for slot in self.rows if (request := self._seats[slot]) is not None]

    def at(self, slot: int, epoch: int) -> Request | None:
        """The request to which work for (slot, epoch) belongs; None when that epoch has passed."""
        request = self._seats[slot]
        return request if request is not None and request.epoch == epoch else None

    def on(self, slot: int) -> Request | None:
        """The request that holds a slot."""
        return self._seats[slot]

    def context(self, slots: Sequence[int]) -> int:
        """Tokens that the requests of these slots have together."""
        total = 0
        for slot in slots:
            request = self._seats[slot]
            total += len(request.tokens) if request is not None else 0
        return total

    def seat(self, request: Request) -> int:
        """Gives a request the lowest free slot; it starts in prefill."""
        slot = self.free.pop(0)
        self._seats[slot] = request
        self._epochs[slot] += 1
        self.drawing += not request.spec.sampling.greedy
        request.slot, request.epoch, request.state = slot, self._epochs[slot], State.PREFILL
        # The order is unique, so two entries never compare their requests.
        insort(self.prefilling, (request.order, request))
        return slot

    def vacate(self, request: Request) -> None:
        """Takes the slot from a request, in prefill or decoding."""
        slot = request.slot
        if slot is None:
            raise ValueError(f"request {request.uid} holds no slot")
        if request.state is State.PREFILL:
            self.prefilling.remove((request.order, request))
        else:
            self.rows.remove(slot)
        self._seats[slot] = request.slot = None
        self.drawing -= not request.spec.sampling.greedy
        self._epochs[slot] += 1
        self.released.append(slot)
        insort(self.free, slot)

    def unfinished(self, in_flight: Sequence[Plan]) -> tuple[int, ...]:
        """Rows that may want a token once all rounds in flight are over; each round brings its rows one at least."""
        ahead = Counter(slot for plan in in_flight for slot in plan.rows)
        ahead.update(chunk.slot for plan in in_flight for chunk in plan.chunks if chunk.last)
        return tuple([slot for slot, one in self.decoding() if one.limit - len(one.tokens) > ahead[slot]])

    def take_released(self) -> tuple[int, ...]:
        """Slots vacated since the last call."""
        released, self.released = tuple(self.released), []
        return released

    def chunks(self, budget: int, segment: int) -> tuple[tuple[Chunk, ...], tuple[Request, ...]]:
        """Chunks of at most `budget` rows in order, and the requests whose prompt they complete.

        A chunk takes whole segments of rows. The requests decode from the next round on.
        """
        chunks: list[Chunk] = []
        complete: list[Request] = []
        while budget > 0 and self.prefilling:
            request = self.prefilling[0][1]
            slot = request.slot
            assert slot is not None
            start = request.computed
            end = request.branch if start < request.branch else request.prefill_to
            request.computed = min(end, start + budget)
            budget -= -(-(request.computed - start) // segment) * segment
            last = request.computed == request.prefill_to
            chunks.append(Chunk(slot, request.epoch, start, tuple(request.tokens[start : request.computed]), last))
            if last:
                del self.prefilling[0]
                request.state = State.DECODE
                insort(self.rows, slot)
                complete.append(request)
        return tuple(chunks), tuple(complete)
