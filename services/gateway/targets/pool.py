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
        self._served = ""
        self._models: dict[str, Model] = {}
        self._ready: dict[str, Link] = {}
        self._candidates: dict[str, list[Candidate]] = {}
        self._stale = False

    @property
    def ready(self) -> bool:
        """A target takes work."""
        return bool(self._present())

    @property
    def served(self) -> str:
        """Name of the model served, of several that of some target; empty while no target was ever there."""
        return self._served

    @property
    def models(self) -> Mapping[str, Model]:
        """Every model by name, as targets described it last; also while none of them is there."""
        return self._models

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
        model: str,
        digests: Sequence[bytes],
        key: str,
        avoid: Collection[str],
        origin: Arithmetic | None,
        wait_s: float,
    ) -> Link:
        """The link that the router chooses; waits while no target takes work.

        Args:
            model: name of the model that the target must serve.
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
            candidates: Sequence[Candidate] = self._present().get(model, ())
            if origin is not None:
                candidates = [one for one in candidates if one.revision == origin.revision]
                until = min(until, self._patience(model, origin.revision, until))
            chosen = self._router.choose(candidates, digests, key, avoid, numerics)
            if chosen is None:
                await self._change(until, _lack(model, origin))
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
        others = [link for link in self._tasks.values() if link is not chosen and _serves(link, job.model)]
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

    async def model(self, name: str, wait_s: float) -> Model:
        """A model by its name, an empty one takes any; known from its first target on, also while none is there.

        Raises:
            PacelineError: NO_TARGET when none came within the wait.
        """
        until = time.monotonic() + wait_s
        while True:
            self._present()
            found = self._models.get(name or self._served)
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
        """Ends all links at once."""
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
        return self._dial.models or self._present().keys()

    def _present(self) -> Mapping[str, Sequence[Candidate]]:
        """Targets that take work by model, as of now."""
        if self._stale:
            self._refresh()
        return self._candidates

    def _refresh(self) -> None:
        """Gathers the links that take work; of two that lead to one pair the first."""
        self._stale = False
        self._ready, self._candidates = {}, {}
        for link in self._links.values():
            candidate = link.candidate()
            if candidate is not None and candidate.pair_id not in self._ready:
                self._ready[candidate.pair_id] = link
                self._candidates.setdefault(candidate.model, []).append(candidate)
        for name in self._dial.models or [""]:
            metrics = self._metrics.of(name)
            metrics.gateway_ready_targets.set(len(self._candidates.get(name, ())) if name else len(self._ready))
        for name, candidates in self._candidates.items():
            described = self._ready[candidates[0].pair_id].model
            if described is not None:
                self._models[name] = described
        if self._served not in self._candidates:
            self._served = next(iter(self._candidates), self._served)

    def _patience(self, model: str, revision: str, until: float) -> float:
        """How long a checkpoint that nobody serves is waited for: not long where the fleet has another one of it."""
        models = [link.model for link in self._links.values() if _serves(link, model)]
        gone = all(one is None or one.revision != revision for one in models)
        return min(until, time.monotonic() + GONE_S) if gone and self._candidates.get(model) else until

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


def _serves(link: Link, model: str) -> bool:
    return link.model is not None and link.model.name == model


def _lack(model: str, origin: Arithmetic | None) -> str:
    """Why a request finds no target."""
    if origin is None:
        return f"no target of {model!r} is ready" if model else "no target is ready"
    return f"no target serves the checkpoint that this answer began with, revision {origin.revision[:12]}"
