"""All links of this gateway: follows the fleet's list and places requests."""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence

from services.common.metrics.catalogue import GatewayMetrics
from services.common.request.errors import Reason, unavailable
from services.gateway.fleet.pairs import PairEntry
from services.gateway.routing.crowd import HOMES, Crowd
from services.gateway.routing.routed_request import RoutedRequest, key_of
from services.gateway.routing.router import Router
from services.gateway.targets.heartbeat import TICK_S
from services.gateway.targets.link import Dial, Link
from services.gateway.targets.messages import Arithmetic, Model
from services.gateway.targets.roster import Roster
from services.gateway.targets.silence import SILENT_AFTER

ASK_S = SILENT_AFTER * TICK_S
"""Longest wait for the answers of other targets about a key; a target that does not answer counts as lost."""

KEPT_S = 60.0
"""How long a target keeps the key of a request that has ended."""

GONE_S = 1.5
"""Longest wait for a checkpoint that no pair serves, where pairs serve another one."""


class Pool:
    """Links by the key of their pair; a link whose pair left the list ends when its requests have."""

    def __init__(self, dial: Dial, router: Router, metrics: GatewayMetrics) -> None:
        """Starts empty."""
        self._dial = dial
        self._router = router
        self._metrics = metrics
        self._links: dict[str, Link] = {}
        self._tasks: dict[asyncio.Task[None], Link] = {}
        self._changed = asyncio.Event()
        self._roster = Roster(router.own)

    @property
    def ready(self) -> bool:
        """A target takes work."""
        return self._roster.ready > 0

    @property
    def served(self) -> str:
        """Name of the model served, of several that of some target; empty while no target was ever there."""
        return self._roster.served

    @property
    def models(self) -> Mapping[str, Model]:
        """Every model by name, as targets described it last; also while none of them is there."""
        return self._roster.models

    @property
    def links(self) -> tuple[Link, ...]:
        """Links to all pairs of the list."""
        return tuple(self._links.values())

    @property
    def counting(self) -> Crowd[Link]:
        """Links to targets that take work and count tenants over all gateways."""
        return self._roster.counting

    def listen(self, pairs: Mapping[str, PairEntry]) -> None:
        """Takes the merged list: opens links to pairs that are new or moved, retires those that left."""
        for key in [*self._links]:
            entry = pairs.get(key)
            if entry is None or entry.address != self._links[key].entry.address:
                link = self._links.pop(key)
                link.retire()
                self._look(link)
        for key, entry in pairs.items():
            link_there = self._links.get(key)
            if link_there is None:
                self._open(key, entry)
            elif link_there.entry != entry:
                link_there.entry = entry
                self._look(link_there)
        self._metrics.gateway_known_pairs.set(len(pairs))
        self._tell()

    async def place(
        self,
        model: str,
        begins: tuple[Sequence[bytes], bytes],
        key: str,
        avoid: Collection[str],
        origin: Arithmetic | None,
        wait_s: float,
    ) -> Link:
        """The link that the router chooses; waits while no target takes work.

        Args:
            model: name of the model that the target must serve.
            begins: prefix digests of the prompt, and what names its chat.
            key: what requests that must meet share; empty when they need not.
            avoid: pairs to take only when nothing else is left.
            origin: take only targets of its checkpoint, of its numerics where there are any; None takes all.
            wait_s: longest wait; it is shorter for a checkpoint that no pair serves any more where others do.

        Raises:
            PacelineError: NO_TARGET when the wait is over.
        """
        until = time.monotonic() + wait_s
        numerics = origin.numerics if origin else ""
        digests, opening = begins
        while True:
            fleet = self._roster.fleet(model)
            if origin is not None:
                fleet = fleet.only(fleet.of_revision(origin.revision))
            chosen = self._router.choose(fleet, digests, key, avoid, numerics, opening)
            if chosen is None:
                until = min(until, self._patience(model, origin, until))
                await self._change(until, _lack(model, origin))
                continue
            link = self._roster.leading(chosen.pair_id)
            if link.candidate() is chosen:
                return link
            self._look(link)  # its session was lost a moment ago

    async def ask_others(self, chosen: Link, job: RoutedRequest) -> None:
        """Asks the pairs that the job's key leads to, those that drain or left the list too, whether one holds it.

        They are the next ones that the key would be given to, and so those that it was given to before a few pairs came
        or went. The chosen one judges the key itself. A target that is lost or does not answer in time counts as not
        holding it.

        Raises:
            PacelineError: DUPLICATE when one does.
        """
        asked = [link.ask(job) for link in self._others(chosen, job)]
        answers = [answer for answer in asked if answer is not None]
        if not answers:
            return
        done, _ = await asyncio.wait(answers, timeout=ASK_S)
        for error in (answer.result() for answer in done):
            if error is not None:
                raise error

    def keep(self, pair_id: str, job: RoutedRequest) -> None:
        """Has another pair keep the key of a job that has ended on this one, which may leave before the key expires.

        It is the first that takes work of those that the key leads to: where a duplicate is sent, or asks, then.
        """
        for link in self._roster.answering(job.model).homes(key_of(job).encode(), HOMES + 1):
            if link.pair_id != pair_id and link.keep(job):
                return

    def _others(self, chosen: Link, job: RoutedRequest) -> list[Link]:
        """Who may hold the job's key beside the chosen one: no more behind one that has long been there.

        A gateway places keys behind such a pair only if it could not reach it. So one is asked in any case, for
        gateways that did not reach the chosen one.
        """
        found = self._roster.answering(job.model).homes(key_of(job).encode(), HOMES + 1)
        before = found.index(chosen) if chosen in found else HOMES
        others = [one for one in found if one is not chosen][:HOMES]
        for number, link in enumerate(others[before:], before + 1):
            if link.settled(self._dial.longest_s + KEPT_S):
                return others[:number]
        return others

    async def model(self, name: str, wait_s: float) -> Model:
        """A model by its name, an empty one takes any; known from its first target on, also while none is there.

        Raises:
            PacelineError: NO_TARGET when none came within the wait.
        """
        until = time.monotonic() + wait_s
        while True:
            found = self.models.get(name or self.served)
            if found is not None:
                return found
            await self._change(until, _lack(name, None))

    async def wait_ready(self, wait_s: float) -> None:
        """Waits until a target takes work.

        Raises:
            PacelineError: NO_TARGET when the wait is over.
        """
        until = time.monotonic() + wait_s
        while not self.ready:
            await self._change(until)

    def change(self) -> asyncio.Event:
        """Is set when a target next begins or ceases to take work, or the list changes."""
        return self._changed

    async def close(self) -> None:
        """Ends all links at once.

        One whose connection fails just then may take the failure for what it waited for, and not hear that it is
        cancelled: as it is retired too, it does not connect again.
        """
        for link in self._tasks.values():
            link.retire()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _open(self, key: str, entry: PairEntry) -> None:
        link = Link(entry, self._dial, self._notify, self._wanted)
        task = asyncio.create_task(link.run())
        self._links[key] = link
        self._tasks[task] = link
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def _wanted(self) -> Collection[str]:
        """The models one of which a target must serve: where none is named, what those serve that take work."""
        return self._dial.models or self._roster.present

    def _patience(self, model: str, origin: Arithmetic | None, until: float) -> float:
        """How long a checkpoint that nobody serves is waited for: not long where the fleet has another one of it."""
        if origin is None or not self._roster.fleet(model).all:
            return until
        gone = all(link.model is None or link.model.revision != origin.revision for link in self._links.values())
        return min(until, time.monotonic() + GONE_S) if gone else until

    def _notify(self, link: Link) -> None:
        """Something changed at a target."""
        self._look(link)
        self._tell()

    def _look(self, link: Link) -> None:
        """Takes in whether a target takes work; the others are as they were."""
        model = self._roster.look(link)
        if model is not None:
            counted = model if self._dial.models else ""
            metrics = self._metrics.of(counted)
            ready = len(self._roster.fleet(counted).all) if counted else self._roster.ready
            metrics.gateway_ready_targets.set(ready)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _change(self, until: float, lack: str = "no target is ready") -> None:
        try:
            async with asyncio.timeout(max(until - time.monotonic(), 0.0)):
                await self._changed.wait()
        except TimeoutError:
            raise unavailable(Reason.NO_TARGET, lack) from None


def _lack(model: str, origin: Arithmetic | None) -> str:
    """Why a request finds no target."""
    if origin is None:
        return f"no target of {model!r} is ready" if model else "no target is ready"
    return f"no target serves the checkpoint that this answer began with, revision {origin.revision[:12]}"
