"""The state of every slot: device tensors that only the target has, and the host's mirror of them.

The scheduler gives slots to requests; this module writes its decisions into static tensors that graphs read. State is
indexed by slot, never by row of a batch. The last slot is the pad slot, which never becomes active and owns no block.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256

import torch

from services.common.device.staging import upload
from services.common.kernels.accept import Entrant, SlotParams, SlotState, flat_cells
from services.target.core.plan import Admission, Growth, Plan
from services.target.core.request import RequestSpec
from services.target.device.shapes import RunnerSettings
from services.target.device.walker import Walker

STOP_IDS = 64
ECHOED = 512
"""Tokens at the end of a prompt that an answer may repeat."""
REACH = 3
"""Widths of free rows behind which no mask is needed yet: of the round in flight, of this one, and of the next."""


@dataclass(slots=True)
class HostSlot:
    """The host's mirror of one occupied slot; `length` follows the commits and equals the device's.

    So does `walker`, the request's way through its rule; None where it has none. Masks rule the rows of a `masked` one.
    It has `missed` so many rounds in a row: it committed nothing, because its masks came too late.
    """

    epoch: int
    spec: RequestSpec
    length: int
    generated: int
    blocks: int
    walker: Walker | None = None
    masked: bool = False
    missed: int = 0
    sampled: bool = field(init=False)
    """Whether noise decides the tokens."""
    raw_greedy: bool = field(init=False)
    """Whether no noise and no processor does, so that the best of the model's own scores wins where nothing masks."""

    unfiltered: bool = field(init=False)
    """Whether what it chooses where no mask is tells what it chooses under one."""

    def __post_init__(self) -> None:
        """Asks once what every round needs to know."""
        sampling = self.spec.sampling
        self.sampled, self.raw_greedy = not sampling.greedy, sampling.plain_greedy
        self.unfiltered = sampling.unfiltered

    def commit(self, tokens: Sequence[int]) -> None:
        """Moves behind tokens that the device has committed."""
        self.length += len(tokens)
        self.generated += len(tokens)
        self.missed = 0 if tokens else self.missed + 1
        if self.walker is not None:
            self.walker.commit(tokens)

    @property
    def plain(self) -> bool:
        """True when the next tokens are the argmax of raw logits: no noise, no processor, no mask."""
        return self.raw_greedy and not self.masked and self.generated >= self.spec.stopping.min_tokens

    @property
    def early(self) -> bool:
        """True while it is too early for the request to end by itself."""
        return self.generated < self.spec.stopping.min_tokens

    @property
    def unruled_for(self) -> int:
        """How many of the next tokens at least need no mask; those before the earliest end do, for its stop tokens."""
        return 0 if self.walker is None or self.early else self.walker.free


Rows = Sequence[tuple[int, HostSlot]]
"""Slots of a step's rows and the requests that held them: the slots may have changed hands when the host reads."""


class DeviceState:
    """Static per-slot tensors plus block tables `[slots + 1, max blocks]` and epochs `[slots + 1]`."""

    def __init__(
        self,
        settings: RunnerSettings,
        vocab: int,
        history_SC: torch.Tensor,
        device: torch.device,
        owner_S: torch.Tensor | None = None,
    ) -> None:
        """`history_SC` lies in the arena, and so does `owner_S`, in which a slot has a number of its tenant."""
        rows = settings.slots + 1
        self._owner_S = owner_S
        self._settings = settings
        most_stops = STOP_IDS + len(settings.eos_ids)
        self.slots = SlotState.allocate(
            settings.slots,
            vocab,
            settings.context_limit,
            stop_ids=most_stops,
            width=settings.widest,
            device=device,
            history_SC=history_SC,
        )
        self.epoch_S = torch.zeros(rows, dtype=torch.int64, device=device)
        self.block_table_SN = torch.zeros(rows, settings.max_blocks, dtype=torch.int32, device=device)
        self.version = 0
        self._seats: list[HostSlot | None] = [None] * rows
        self._left: tuple[Plan, list[Entrant]] | None = None

    def seated(self, slots: Sequence[int]) -> list[tuple[int, HostSlot]]:
        """Occupied slots with their mirrors; raises AssertionError where one is empty."""
        found = [(slot, seat) for slot in slots if (seat := self._seats[slot]) is not None]
        assert len(found) == len(slots), f"one of the slots {slots} is empty"
        return found

    def holds(self, slot: int, seat: HostSlot) -> bool:
        """Whether a slot is still this request's."""
        return self._seats[slot] is seat

    def seat(self, slot: int) -> HostSlot:
        """The occupied slot's mirror; raises AssertionError for an empty one."""
        seat = self._seats[slot]
        assert seat is not None, f"slot {slot} is empty"
        return seat

    def near(self, seat: HostSlot) -> bool:
        """Whether a rule may reach a row of the next round: what the host has read may be two rounds behind it."""
        return seat.walker is not None and seat.unruled_for < REACH * self._settings.widest

    def wake(self, seated: Rows) -> bool:
        """Begins or ends to rule rows; returns whether any is ruled."""
        ruled = False
        for slot, seat in seated:
            if seat.walker is None:
                continue
            masked = self.near(seat)
            if masked != seat.masked:
                seat.masked = masked
                self.slots.masked_S[slot].fill_(masked)
            ruled |= masked
        return ruled

    def apply(self, plan: Plan, later: bool = False) -> None:
        """Applies releases, admissions and growth, in that order, each in a few copies however many there are.

        With `later` only block tables are written, which is all that prompts need; `finish` writes the rest.
        """
        if self._left is not None:
            self.finish()
        if not (plan.released or plan.admissions or plan.grown):
            return
        for slot in plan.released:
            self._seats[slot] = None
        self._left = plan, [self._seated(admission) for admission in plan.admissions]
        changed = dict.fromkeys((*plan.released, *(admission.slot for admission in plan.admissions)))
        if changed:
            slots_B = upload([*changed], torch.int64, self.epoch_S.device)
            self.block_table_SN.index_fill_(0, slots_B, 0)
        grown: tuple[Admission | Growth, ...] = (*plan.admissions, *plan.grown)
        if grown:
            self._append(grown)
        self.version += 1
        if not later:
            self.finish()

    def finish(self) -> None:
        """Writes what `apply` has left."""
        if self._left is None:
            return
        (plan, entrants), self._left = self._left, None
        if plan.released:
            self.slots.release(*plan.released)
        if entrants:
            self._own(plan.admissions, False)
            self.slots.admit(*entrants)
            self._own(plan.admissions, True)
            slots_B = upload([admission.slot for admission in plan.admissions], torch.int64, self.epoch_S.device)
            epochs_B = upload([admission.epoch for admission in plan.admissions], torch.int64, self.epoch_S.device)
            self.epoch_S.index_copy_(0, slots_B, epochs_B)

    def _own(self, admissions: Sequence[Admission], owned: bool) -> None:
        """Tell whose slots are. While a text is written over another's a slot is nobody's, and readers look twice."""
        if self._owner_S is not None:
            for admission in admissions:
                self._owner_S[admission.slot] = owner_of(admission.spec.salt) if owned else 0

    def _seated(self, admission: Admission) -> Entrant:
        spec = admission.spec
        prompt, output = spec.token_ids[: spec.prompt_length], spec.token_ids[spec.prompt_length :]
        walker = None if spec.grammar is None else Walker(spec.grammar, output, prompt[-ECHOED:])
        self._seats[admission.slot] = HostSlot(admission.epoch, spec, len(spec.token_ids) - 1, len(output), 0, walker)
        return Entrant(admission.slot, slot_params(spec, self._settings), prompt, output)

    def _append(self, grown: Sequence[Admission | Growth]) -> None:
        """Adds blocks behind those that slots have."""
        places = []
        for growth in grown:
            seat, end = self.seat(growth.slot), self.seat(growth.slot).blocks + len(growth.blocks)
            places.append(range(seat.blocks, end))
            seat.blocks = end
        cells = flat_cells([growth.slot for growth in grown], places, self.block_table_SN)
        blocks = [block for growth in grown for block in growth.blocks]
        device = self.epoch_S.device
        self.block_table_SN.view(-1).index_copy_(
            0, upload(cells, torch.int64, device), upload(blocks, torch.int32, device)
        )


def owner_of(salt: bytes) -> int:
    """Return a number above 0 for a tenant's salt, 0 without one; it fits a signed word."""
    return int.from_bytes(sha256(b"owner" + salt).digest()[:8], "big") >> 1 | 1 if salt else 0


def slot_params(spec: RequestSpec, settings: RunnerSettings) -> SlotParams:
    """What accept needs of a request.

    The masks of a request with a rule know which stop tokens come too early: all others end it. They begin to rule it
    when they are first made.
    """
    sampling, stopping = spec.sampling, spec.stopping
    return SlotParams(
        max_tokens=stopping.max_tokens,
        context_limit=settings.context_limit,
        min_tokens=0 if spec.grammar else stopping.min_tokens,
        stop_ids=stop_ids(spec, settings),
        **{field.name: getattr(sampling, field.name) for field in fields(sampling)},
        draft_limit=spec.speculation.cap,
    )


def stop_ids(spec: RequestSpec, settings: RunnerSettings) -> tuple[int, ...]:
    """Token ids that end a request: its own, and a text's end unless it ignores that and has no grammar that ends."""
    ends = spec.grammar is not None and spec.grammar.ends
    eos = () if spec.stopping.ignore_eos and not ends else settings.eos_ids
    return tuple(dict.fromkeys((*spec.stopping.stop_token_ids, *eos)))
