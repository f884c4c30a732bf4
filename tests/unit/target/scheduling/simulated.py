"""A runner without a model: blocks remember which tokens they hold, so a block that is reused too early is found at
once.

The next token is a hash of the request's tokens, hence the text is the same whatever happens around it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from services.common.request.sampling import FinishReason
from services.target.core.plan import Admission, Chunk, Outcome, Plan, Save
from services.target.core.request import RequestSpec
from services.target.scheduling.slots import apply_stop_conditions, stop_ids

VOCAB = 320
REJECTED = -7
EOS = frozenset({0})


def next_token(tokens: Sequence[int], seed: int) -> int:
    """The token after `tokens`; end of sequence comes up about once in 320."""
    text = f"{seed} {len(tokens)} {tokens[-1]} {tokens[len(tokens) // 2]}".encode()
    return int.from_bytes(blake2b(text, digest_size=4).digest(), "little") % VOCAB


def unloaded_text(spec: RequestSpec, context_limit: int) -> tuple[tuple[int, ...], FinishReason | None]:
    """What a request yields when it is alone."""
    tokens = list(spec.token_ids)
    ends = stop_ids(spec.stopping, EOS)
    while True:
        token = next_token(tokens, spec.sampling.seed)
        generated = len(tokens) - spec.prompt_length
        _, end = apply_stop_conditions([token], generated, spec.stopping, ends, context_limit - len(tokens))
        tokens.append(token)
        if end is not None:
            return tuple(tokens[spec.prompt_length :]), end


@dataclass
class _Seat:
    spec: RequestSpec
    epoch: int
    blocks: list[int]
    tokens: list[int]
    computed: int
    active: bool = True
    salt: bytes = field(default=b"")
    folded: int = 0


class SimulatedRunner:
    """Executes plans over a dictionary of K/V content; raises AssertionError on any wrong content."""

    def __init__(self, block_size: int, context_limit: int, grid: int = 0, window: int = 0) -> None:
        """With a `grid` the model has recurrent states: blocks of so many positions, folded as a round begins.

        With a `window` it has layers that see so many positions, whose content lies where a map of places says.
        """
        self._grid, self._window = grid, window
        self._place: dict[int, int] = {}
        self._near: dict[tuple[int, int], tuple[bytes, int]] = {}
        self._kept: dict[int, tuple[bytes, list[int]]] = {}
        self._size = block_size
        self._context_limit = context_limit
        self._content: dict[tuple[int, int], tuple[bytes, int]] = {}
        self._seats: dict[int, _Seat] = {}
        self.written: set[int] = set()

    def execute(self, plan: Plan, matched: int) -> tuple[Outcome, ...]:
        """Runs a round in which the first `matched` drafts of every row are right; negative: no drafts came."""
        self._apply(plan)
        first = []
        for chunk in plan.chunks:
            first += [outcome for outcome in (self._prefill(chunk),) if outcome is not None]
            self._save(chunk.saves)
        rows = [outcome for slot in plan.rows if (outcome := self._verify(slot, plan.width, matched)) is not None]
        return tuple(first + rows)

    def fail(self, plan: Plan) -> None:
        """Begins a round and computes nothing; what it was to keep is lost."""
        self._apply(plan)
        for save in plan.every_save:
            self._kept.pop(save.snapshot, None)

    def learn(self, moves: Iterable[tuple[int, int]]) -> None:
        """Blocks have these places from now on."""
        self._place.update(moves)

    def _apply(self, plan: Plan) -> None:
        self.written = set()
        self.learn(plan.moves)
        self._save(plan.saves)
        for slot in plan.released:
            self._seats.pop(slot, None)
        for admission in plan.admissions:
            assert admission.slot not in self._seats, "a slot was admitted twice"
            assert admission.cached < len(admission.spec.token_ids), "a hit left nothing to compute"
            tokens = list(admission.spec.token_ids)
            seat = _Seat(admission.spec, admission.epoch, list(admission.blocks), tokens, admission.cached)
            seat.salt = admission.spec.salt
            self._resume(admission, seat)
            self._seats[admission.slot] = seat
        for growth in plan.grown:
            self._seats[growth.slot].blocks += growth.blocks

    def _prefill(self, chunk: Chunk) -> Outcome | None:
        seat = self._seats[chunk.slot]
        assert chunk.epoch == seat.epoch and chunk.start == seat.computed, "a chunk is out of order"
        self._expect(seat)
        for index, token in enumerate(chunk.token_ids):
            assert token == seat.tokens[chunk.start + index]
            self._write(seat, chunk.start + index, token)
        seat.computed += len(chunk.token_ids)
        self._fold(seat)
        assert chunk.last == (seat.computed == len(seat.tokens))
        if not chunk.last:
            return None
        self._expect(seat)
        return self._committed(chunk.slot, seat, [next_token(seat.tokens, seat.spec.sampling.seed)], 0, 0)

    def _verify(self, slot: int, width: int, matched: int) -> Outcome | None:
        seat = self._seats[slot]
        self._fold(seat)
        if not seat.active:
            return None
        self._expect(seat)
        speculation = seat.spec.speculation
        cap = 0 if speculation.off else width - 1 if speculation.max_draft is None else speculation.max_draft
        drafted = min(cap, width - 1) if matched >= 0 else 0
        accepted = min(max(matched, 0), drafted)
        start = seat.computed
        chosen: list[int] = []
        for row in range(width):
            if row <= accepted:
                tokens = seat.tokens + chosen
                self._write(seat, start + row, tokens[-1])
                chosen.append(next_token(tokens, seat.spec.sampling.seed))
            else:
                self._write(seat, start + row, REJECTED)
        return self._committed(slot, seat, chosen, accepted, drafted)

    def _committed(self, slot: int, seat: _Seat, chosen: list[int], accepted: int, drafted: int) -> Outcome:
        ends = stop_ids(seat.spec.stopping, EOS)
        generated = len(seat.tokens) - seat.spec.prompt_length
        room = self._context_limit - len(seat.tokens)
        kept, end = apply_stop_conditions(chosen, generated, seat.spec.stopping, ends, room)
        seat.tokens += chosen[:kept]
        seat.computed = len(seat.tokens) - 1
        seat.active = end is None
        return Outcome(slot, seat.epoch, tuple(chosen[:kept]), min(accepted, kept - 1), drafted, end)

    def _fold(self, seat: _Seat) -> None:
        if self._grid:
            seat.folded = seat.computed // self._grid * self._grid

    def _save(self, saves: Sequence[Save]) -> None:
        for save in saves:
            # A slot's state stays until another request gets it, also where its request has ended.
            seat = self._seats[save.slot]
            assert save.folded == seat.folded, f"a state of {seat.folded} tokens is kept as one of {save.folded}"
            self._kept[save.snapshot] = seat.salt, seat.tokens[: save.folded]

    def _resume(self, admission: Admission, seat: _Seat) -> None:
        if not self._grid:
            assert admission.snapshot is None
        elif admission.cached:
            assert admission.snapshot is not None, "a state is missing"
            found = self._kept[admission.snapshot]
            assert found == (seat.salt, seat.tokens[: admission.cached]), "a state of other tokens"
            seat.folded = admission.cached

    def _write(self, seat: _Seat, position: int, token: int) -> None:
        index, offset = divmod(position, self._size)
        if index < len(seat.blocks):
            self._content[seat.blocks[index], offset] = (seat.salt, token)
            self.written.add(seat.blocks[index])
            if self._window:
                place = self._place.get(seat.blocks[index], 0)
                unread = token == REJECTED or position >= seat.spec.prompt_length + seat.spec.stopping.max_tokens
                assert place or unread, f"position {position} has no place in the window"
                self._near[place, offset] = (seat.salt, token)

    def _expect(self, seat: _Seat) -> None:
        for position in range(seat.computed):
            index, offset = divmod(position, self._size)
            found = self._content.get((seat.blocks[index], offset))
            assert found == (seat.salt, seat.tokens[position]), f"position {position} holds {found}"
        for position in range(
            max(0, seat.computed + 1 - self._window) if self._window else seat.computed, seat.computed
        ):
            index, offset = divmod(position, self._size)
            place = self._place.get(seat.blocks[index], 0)
            found = self._near.get((place, offset)) if place else None
            assert found == (seat.salt, seat.tokens[position]), f"position {position} in the window holds {found}"
