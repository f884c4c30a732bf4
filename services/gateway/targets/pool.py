"""All links of this gateway: follows the fleet's list and places requests."""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence

from services.common.metrics.catalogue import GatewayMetrics
from services.common.request.errors import Reason, unavailable
from services.gateway.fleet.pairs import PairEntry
from services.gateway.routing.routed_request import RoutedRequest, key_of
from services.gateway.routing.router import Candidate, Router, homes
from services.gateway.targets.heartbeat import SILENT_AFTER, TICK_S
from services.gateway.targets.link import Dial, Link
from services.gateway.targets.messages import Arithmetic, Model, Refused

ASK_S = SILENT_AFTER * TICK_S
"""Longest wait for the answers of other targets about a key; a target that does not answer counts as lost."""

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
        self._model: Model | None = None
        self._ready: dict[str, Link] = {}
        self._candidates: list[Candidate] = []
        self._stale = False

    @property
    def ready(self) -> bool:
        """A target takes work."""
        return bool(self._present())

    @property
    def served(self) -> str:
        """Name of the model served; empty while no target was ever there."""
        return self._model.name if self._model else ""

    @property
    def links(self) -> tuple[Link, ...]:
        """Links to all pairs of the list."""
        return tuple(self._links.values())

    def listen(self, pairs: Mapping[str, PairEntry]) -> None:
        """Takes the merged list: opens links to pairs that are new or moved, retires those that left."""
        for key in [*self._links]:
            entry = pairs.get(key)
            if entry is None or entry.address != self._links[key].entry.address:
                self._links.pop(key).retired = True
        for key, entry in pairs.items():
            if key in self._links:
                self._links[key].entry = entry
            else:
                self._open(key, entry)
        self._metrics.gateway_known_pairs.set(len(pairs))
        self._notify()

    async def place(
        self,
        digests: Sequence[bytes],
        key: str,
        avoid: Collection[str],
        origin: Arithmetic | None,
        wait_s: float,
    ) -> Link:
        """The link that the router chooses; waits while no target takes work.

        Args:
            digests: prefix digests of the prompt.
            key: what requests that must meet share; empty when they need not.
            avoid: pairs to take only when nothing else is left.
            origin: take only targets of its checkpoint, of its numerics where there are any; None takes all.
            wait_s: longest wait; it is shorter for a checkpoint that no pair serves any more where others do.

        Raises:
            PacelineError: NO_TARGET when the wait is over.
        """
        until = time.monotonic() + wait_s
        numerics = origin.numerics if origin else ""
        while True:
            candidates = self._present()
            if origin is not None:
                candidates = [one for one in candidates if one.revision == origin.revision]
                until = min(until, self._patience(origin.revision, until))
            chosen = self._router.choose(candidates, digests, key, avoid, numerics)
            if chosen is None:
                await self._change(until, _lack(origin))
                continue
            link = self._ready[chosen.pair_id]
            if link.candidate() is chosen:
                return link
            self._stale = True  # its session was lost since it was last looked at

    async def ask_others(self, chosen: Link, job: RoutedRequest) -> None:
        """Asks the pairs that the job's key leads to, those that drain or left the list too, whether one holds it.

        They are the next ones that the key would be given to, and so those that it was given to before a few pairs came
        or went. The chosen one judges the key itself. A target that is lost or does not answer in time counts as not
        holding it.

        Raises:
            PacelineError: DUPLICATE when one does.
        """
        others = [link for link in self._tasks.values() if link is not chosen]
        asked = [link.ask(job) for link in homes(key_of(job).encode(), others)]
        answers = [asyncio.ensure_future(attempt.next()) for attempt in asked if attempt is not None]
        if not answers:
            return
        try:
            done, _ = await asyncio.wait(answers, timeout=ASK_S)
        finally:
            for answer in answers:
                answer.cancel()
        for end in (answer.result().end for answer in done):
            if isinstance(end, Refused):
                raise end.error

    async def model(self, wait_s: float) -> Model:
        """The model served; known from the first target on, also while none is there.

        Raises:
            PacelineError: NO_TARGET when none came within the wait.
        """
        until = time.monotonic() + wait_s
        while not self._present() and self._model is None:
            await self._change(until)
        assert self._model is not None, "a target that is present has one"
        return self._model

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
        """Ends all links at once."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _open(self, key: str, entry: PairEntry) -> None:
        link = Link(entry, self._dial, self._notify)
        task = asyncio.create_task(link.run())
        self._links[key] = link
        self._tasks[task] = link
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def _present(self) -> list[Candidate]:
        """Targets that take work, as of now."""
        if self._stale:
            self._refresh()
        return self._candidates

    def _refresh(self) -> None:
        """Gathers the links that take work; of two that lead to one pair the first."""
        self._stale = False
        self._ready, self._candidates = {}, []
        for link in self._links.values():
            candidate = link.candidate()
            if candidate is not None and candidate.pair_id not in self._ready:
                self._ready[candidate.pair_id] = link
                self._candidates.append(candidate)
        self._metrics.gateway_ready_targets.set(len(self._candidates))
        self._model = next((link.model for link in self._ready.values()), self._model)

    def _patience(self, revision: str, until: float) -> float:
        """How long a checkpoint that nobody serves is waited for: not long where the fleet has another one."""
        models = [link.model for link in self._links.values()]
        gone = all(model is None or model.revision != revision for model in models)
        return min(until, time.monotonic() + GONE_S) if gone and self._candidates else until

    def _notify(self) -> None:
        """Notes that something changed. Many links that change at once cost one look at all of them."""
        if not self._stale:
            self._stale = True
            asyncio.get_running_loop().call_soon(self._present)
        self._changed.set()
        self._changed = asyncio.Event()

    async def _change(self, until: float, lack: str = "no target is ready") -> None:
        try:
            async with asyncio.timeout(max(until - time.monotonic(), 0.0)):
                await self._changed.wait()
        except TimeoutError:
            raise unavailable(Reason.NO_TARGET, lack) from None


def _lack(origin: Arithmetic | None) -> str:
    """Why a request finds no target."""
    if origin is None:
        return "no target is ready"
    return f"no target serves the checkpoint that this answer began with, revision {origin.revision[:12]}"
