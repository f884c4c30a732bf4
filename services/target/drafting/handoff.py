"""How target and drafter take turns: by messages of the hosts, or by flags that their streams write and wait for.

By flags no host and no message stands between a commit and the next draft: while a verify runs, the target's host
enqueues the next round behind it, and asks for its drafts. When the verify is done the target's stream publishes what
it committed, the drafter's stream, or under MPS its next step, has been waiting for that, and the target's waits for
the drafts. The host reads the results of a round while the next one runs.
"""

import time
from collections.abc import Callable
from typing import Protocol

import torch

from services.common.pair import attach
from services.common.pair.arena import Arena
from services.common.pair.arena.flags import FlagPair
from services.common.pair.gate import Gate
from services.common.pair.mps import mps_serves
from services.target.core.plan import Plan
from services.target.drafting.mailbox import Mailbox
from services.target.drafting.pace import Pace, PaceStream
from services.target.drafting.wire import WireHandoff

_FIRST_ROUND_S = 2.0
"""Patience with the first draft of an attachment: drivers load what they have put off."""
_POLL_S = 50e-6


class Partner(Protocol):
    """The attachment as a hand-off needs it."""

    watchdog_s: float

    @property
    def direct(self) -> bool:
        """Whether rounds are asked past gRPC."""
        ...

    @property
    def speculating(self) -> bool:
        """Whether the drafter is alive and in time so far."""
        ...

    def give_up(self) -> None:
        """Quarantines the drafter: it is late."""
        ...


class Flags(Protocol):
    """The target's side of a generation's flags."""

    def publish(self, number: int) -> None:
        """The stream tells that a round's inputs are published."""
        ...

    def await_drafted(self, number: int) -> None:
        """The stream waits for a round's drafts."""
        ...

    def release_target(self, number: int) -> None:
        """Meets that wait from outside."""
        ...


class Event(Protocol):
    """A mark on a stream."""

    def query(self) -> bool:
        """Whether the stream has come to it."""
        ...

    def synchronize(self) -> object:
        """Waits until it has."""
        ...


class Handoff(Protocol):
    """Orders the target's stream and the drafter's. All but `join` belong to the engine's thread."""

    wanted: str
    """What attachments are offered: host, socket, flags or wire."""
    mode: str
    """What the present attachment uses."""
    look_ahead: int
    """Rounds that may be launched before the one ahead of them is read."""
    gate: Gate | None
    """Stands at the head of captured steps that read drafts and that it serves; before others the stream waits."""

    def mailbox(self, arena: Arena) -> Mailbox:
        """What verify copies drafts from."""
        ...

    def pace(self, stream: PaceStream) -> Pace:
        """What asks for rounds over the stream of an attachment; any thread may call this."""
        ...

    def join(self, generation: int, partner: Partner) -> None:
        """Makes an attachment known before the engine hears of it; any thread may call this."""
        ...

    def set_generation(self, generation: int) -> None:
        """This attachment counts from now on; 0 is none."""
        ...

    def published(self, plan: Plan) -> None:
        """The round's inputs are enqueued: the drafter may begin when they are there."""
        ...

    def before_verify(self, plan: Plan) -> None:
        """The next thing on the stream reads the mailbox."""
        ...

    def wait(self, plan: Plan, done: Event | None) -> None:
        """Waits for the mark behind the round's verify; without one the verify is done."""
        ...


class HostHandoff:
    """Messages order everything: the target's host waits for the drafter's before it starts the verify."""

    look_ahead = 0
    gate: Gate | None = None

    def __init__(self, device: torch.device, wanted: str = "host") -> None:
        """`wanted` is how messages should go: by gRPC (host) or by the side socket (socket)."""
        self._device = device
        self.wanted = self.mode = wanted

    def mailbox(self, arena: Arena) -> Mailbox:
        """The drafter fills it."""
        return Mailbox.shared(arena)

    def pace(self, stream: PaceStream) -> Pace:
        """The stream itself."""
        return stream

    def join(self, generation: int, partner: Partner) -> None:
        """The engine asks the attachment itself; only the mode changes, when the drafter keeps no connection."""
        self.mode = "socket" if partner.direct else "host"

    def set_generation(self, generation: int) -> None:
        """Nothing depends on it."""

    def published(self, plan: Plan) -> None:
        """The message must not overtake the copies."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()

    def before_verify(self, plan: Plan) -> None:
        """The drafts are there: the host has waited for them."""

    def wait(self, plan: Plan, done: Event | None) -> None:
        """Nothing can hold it up."""
        if done is not None:
            done.synchronize()


class FlagHandoff:
    """Streams order everything; the host only watches that the drafter is alive and in time."""

    wanted = "flags"
    look_ahead = 1

    def __init__(self, pair: Callable[[int], Flags], gate: Gate | None = None) -> None:
        """`pair` makes the flags of a generation; `gate` is one for all."""
        self.mode = "flags_mps" if mps_serves() else "flags_timeslice"
        self.gate = gate
        self._pair = pair
        self._partners: dict[int, tuple[Partner, Flags]] = {}
        self._partner: Partner | None = None
        self._flags: Flags | None = None
        self._waiting: set[int] = set()
        self._fresh = False

    def mailbox(self, arena: Arena) -> Mailbox:
        """The drafter fills it."""
        return Mailbox.shared(arena)

    def pace(self, stream: PaceStream) -> Pace:
        """The stream itself."""
        return stream

    def join(self, generation: int, partner: Partner) -> None:
        """Makes the flags of the attachment."""
        self._partners[generation] = (partner, self._pair(generation))

    def set_generation(self, generation: int) -> None:
        """Forgets the attachment before."""
        partner, flags = self._partners.pop(generation, (None, None))
        self._partner, self._flags = partner, flags
        self._fresh = True

    def published(self, plan: Plan) -> None:
        """Writes the flag behind the copies."""
        if self._flags is not None:
            self._flags.publish(plan.number)

    def before_verify(self, plan: Plan) -> None:
        """Lets the stream wait for the drafter's flag, unless the step does."""
        if self._flags is not None:
            if self.gate is None or not self.gate.serves(plan.bucket):
                self._flags.await_drafted(plan.number)
            self._waiting.add(plan.number)

    def wait(self, plan: Plan, done: Event | None) -> None:
        """Watches until the verify is done; a late or lost drafter is released from, and the round has no drafts."""
        assert done is not None, "a GPU's rounds end with a mark"
        if plan.number not in self._waiting or self._flags is None or self._partner is None:
            done.synchronize()
            return
        self._waiting.discard(plan.number)
        patience = max(self._partner.watchdog_s, _FIRST_ROUND_S) if self._fresh else self._partner.watchdog_s
        deadline, self._fresh = time.monotonic() + patience, False
        while not done.query():
            if not self._partner.speculating or time.monotonic() > deadline:
                self._flags.release_target(plan.number)
                self._partner.give_up()
                done.synchronize()
            time.sleep(_POLL_S)


def make_handoff(
    wanted: str, arena: Arena, device: torch.device, watchdog_s: float, shares_memory: bool = True
) -> Handoff:
    """The hand-off of the settings: flags on a GPU, the side socket on a CPU, gRPC where host order or wire is wanted.

    Without `shares_memory` it is by wire, for drafters that cannot map the arena.
    """
    if wanted == "wire" or not shares_memory:
        return WireHandoff(arena, device, shares_memory)
    if device.type == "cpu" and wanted != "host":
        return HostHandoff(device, "socket")
    if device.type == "cuda" and wanted != "host":
        flags = arena.tensor(attach.FLAGS)
        # Longer than any patience of the host, which must be the one that gives a late drafter up.
        gate = Gate(flags, "drafted", 2 * max(watchdog_s, _FIRST_ROUND_S)) if mps_serves() else None
        return FlagHandoff(lambda generation: FlagPair(flags, generation), gate)
    return HostHandoff(device)
