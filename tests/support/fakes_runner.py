"""A runner without a model: a token is a fixed function of the tokens before it, in whatever order rounds run.

It checks what a real runner relies on: epochs, contiguous chunks, landings in the order of launches. With a look-ahead
it runs a round when it is launched, as a device does, whether or not the one before has landed; a request that has
ended commits nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from services.common.request.sampling import FinishReason
from services.target.core.drafts import Drafts
from services.target.core.plan import Outcome, Plan, PromptScores
from services.target.core.request import RequestSpec


@dataclass(slots=True)
class FakeOutput:
    """The output of a round that took no time."""

    take: Callable[[], tuple[Outcome, ...]]
    prepare_us: float = 1.0
    prefill_us: float = 0.0
    verify_us: float = 10.0
    host_us: float = 1.0
    make: Callable[[], None] = lambda: None
    scores: tuple[PromptScores, ...] = ()

    def rule(self) -> None:
        """Makes masks."""
        self.make()

    def land(self) -> tuple[Outcome, ...]:
        """What the round committed."""
        return self.take()


def next_token(tokens: Sequence[int], seed: int, vocab: int) -> int:
    """The token after ``tokens``: depends on the last three, the position and the seed."""
    value = seed * 1_000_003 + len(tokens)
    for token in tokens[-3:]:
        value = (value * 6_364_136_223 + token + 1_442_695_041) % (1 << 61)
    return 2 + value % (vocab - 2)


def expected_output(spec: RequestSpec, vocab: int, count: int) -> list[int]:
    """The output of a request computed token by token."""
    tokens = list(spec.token_ids[: spec.prompt_length])
    for _ in range(count):
        tokens.append(next_token(tokens, spec.sampling.seed, vocab))
    return tokens[spec.prompt_length :]


@dataclass(slots=True)
class _Seat:
    spec: RequestSpec
    epoch: int
    tokens: list[int]
    computed: int
    active: bool = True


@dataclass
class FakeRunner:
    """Runs plans on lists. ``accept(slot, round)`` says how many drafts of a row are right; default: all.

    In the rounds of ``undrafted`` the device waits for drafts in vain.
    """

    vocab: int = 97
    accept: Callable[[int, int], int] = lambda slot, number: 1 << 30
    before_execute: Callable[[Plan], None] = lambda plan: None
    before_land: Callable[[Plan], None] = lambda plan: None
    generation: int = 0
    rounds: list[tuple[int, bool]] = field(default_factory=list)
    seats: dict[int, _Seat] = field(default_factory=dict)
    prepared: int = -1
    look_ahead: int = 0
    sound: bool = True
    undrafted: frozenset[int] = frozenset()
    before_rule: Callable[[Plan], None] = lambda plan: None
    in_flight: list[int] = field(default_factory=list)

    def use(self, drafts: Drafts) -> None:
        """Remembers the generation."""
        assert not self.in_flight, "a round in flight belongs to the generation before"
        self.generation = drafts.generation

    def prepare(self, plan: Plan) -> None:
        """Applies releases and admissions."""
        assert len(self.in_flight) <= self.look_ahead
        self.prepared = plan.number
        for slot in plan.released:
            self.seats.pop(slot, None)
        for admission in plan.admissions:
            tokens = list(admission.spec.token_ids)
            self.seats[admission.slot] = _Seat(admission.spec, admission.epoch, tokens, admission.cached)

    def overlap(self, plan: Plan) -> None:
        """Nothing can overlap here."""

    def launch(self, plan: Plan, drafted: bool) -> FakeOutput:
        """Runs the plan at once; the landing tells what came of it."""
        assert self.prepared == plan.number, "prepare comes first"
        self.before_execute(plan)
        outcomes = self._execute(plan, drafted)
        self.in_flight.append(plan.number)

        def land() -> tuple[Outcome, ...]:
            assert self.in_flight.pop(0) == plan.number, "rounds land in the order of their launches"
            self.before_land(plan)
            return outcomes

        return FakeOutput(land, make=lambda: self.before_rule(plan))

    def _execute(self, plan: Plan, drafted: bool) -> tuple[Outcome, ...]:
        """Prefills, then commits one token and the drafts that are right for each row."""
        self.rounds.append((plan.width, drafted))
        outcomes = []
        for chunk in plan.chunks:
            seat = self.seats[chunk.slot]
            assert seat.epoch == chunk.epoch and seat.computed == chunk.start
            seat.computed += len(chunk.token_ids)
            if chunk.last:
                assert seat.computed == len(seat.tokens)
                outcomes.append(self._commit(chunk.slot, seat, 0, 0))
        for slot in plan.rows:
            width = plan.width if drafted and plan.number not in self.undrafted else 1
            accepted = min(self.accept(slot, plan.number), width - 1)
            outcomes.append(self._commit(slot, self.seats[slot], accepted, width - 1))
        return tuple(outcomes)

    def _commit(self, slot: int, seat: _Seat, accepted: int, drafted: int) -> Outcome:
        if not seat.active:
            return Outcome(slot, seat.epoch, ())
        committed: list[int] = []
        end = None
        for _ in range(accepted + 1):
            token = next_token(seat.tokens, seat.spec.sampling.seed, self.vocab)
            seat.tokens.append(token)
            committed.append(token)
            end = self._end(seat, token)
            if end is not None:
                seat.active = False
                break
        seat.computed = len(seat.tokens) - 1
        return Outcome(slot, seat.epoch, tuple(committed), min(accepted, len(committed) - 1), drafted, end)

    def _end(self, seat: _Seat, token: int) -> FinishReason | None:
        generated = len(seat.tokens) - seat.spec.prompt_length
        if token in seat.spec.stopping.stop_token_ids and generated > seat.spec.stopping.min_tokens:
            return FinishReason.STOP_TOKEN
        return FinishReason.LENGTH if generated >= seat.spec.stopping.max_tokens else None
