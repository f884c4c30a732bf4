"""All links of this gateway: follows the fleet's list and places requests."""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence

from services.common.metrics.catalogue import GatewayMetrics
from services.common.request.errors import Reason, unavailable
from services.gateway.fleet.pairs import PairEntry
from services.gateway.routed_request import RoutedRequest
from services.gateway.router import Candidate, Router
from services.gateway.targets.heartbeat import SILENT_AFTER, TICK_S
from services.gateway.targets.link import Dial, Link
from services.gateway.targets.messages import Arithmetic, Model, Refused

ASK_S = SILENT_AFTER * TICK_S
"""Longest wait for the answers of other targets about a key; a target that does not answer counts as lost."""


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

    @property
    def ready(self) -> bool:
        """A target takes work."""
        return bool(self._candidates(None))

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
            wait_s: longest wait.

        Raises:
            PacelineError: NO_TARGET when the wait is over.
        """
        until = time.monotonic() + wait_s
        while True:
            candidates = self._candidates(origin.revision if origin else None)
            numerics = origin.numerics if origin else ""
            chosen = self._router.choose([*candidates.values()], digests, key, avoid, numerics)
            if chosen is not None:
                return next(link for link, one in candidates.items() if one.pair_id == chosen.pair_id)
            await self._change(until)

    async def ask_others(self, chosen: Link, job: RoutedRequest) -> None:
        """Asks every target but the chosen one, those that drain or left the list too, whether it holds the job's key.

        The chosen one judges the key itself. A target that is lost or does not answer in time counts as not holding it.

        Raises:
            PacelineError: DUPLICATE when one does.
        """
        asked = [link.ask(job) for link in self._tasks.values() if link is not chosen]
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
        while self._model is None:
            await self._change(until)
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

    def _candidates(self, revision: str | None) -> dict[Link, Candidate]:
        """Links that take work; of two that lead to one pair the first."""
        found: dict[Link, Candidate] = {}
        seen: set[str] = set()
        for link in self._links.values():
            candidate, model = link.candidate(), link.model
            if candidate is None or model is None or candidate.pair_id in seen:
                continue
            if revision is None or model.revision == revision:
                seen.add(candidate.pair_id)
                found[link] = candidate
        return found

    def _notify(self) -> None:
        ready = self._candidates(None)
        self._metrics.gateway_ready_targets.set(len(ready))
        self._model = next((link.model for link in ready), self._model)
        self._changed.set()
        self._changed = asyncio.Event()

    async def _change(self, until: float) -> None:
        try:
            async with asyncio.timeout(max(until - time.monotonic(), 0.0)):
                await self._changed.wait()
        except TimeoutError:
            raise unavailable(Reason.NO_TARGET, "no target is ready") from None
