"""Keeps the asked number of pairs running and announces them."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from deploy.cluster.cores import Cores
from deploy.cluster.meter import PairMeter
from deploy.cluster.pair import PairSpec, PairStatus, PlacedPair, StraddledPairError
from deploy.cluster.patience import Limits, Patience, Restarts
from deploy.cluster.registry import PairEntry, Registry, State
from deploy.cluster.settings import ClusterSettings
from deploy.cluster.specs import pair_spec

logger = logging.getLogger(__name__)


class NoPairLeftError(RuntimeError):
    """Every pair was refused or given up: none serves or starts."""


class Controller:
    """Places pairs, watches them, replaces a pair that straddles GPUs and whatever stays unhealthy.

    Ray restarts a dead actor by itself; the controller only learns its new address.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        resource: str,
        run_dir: Path,
        registry: Registry,
        meters: Mapping[str, PairMeter],
    ) -> None:
        """meters holds one for the id of each pair."""
        self._settings = settings
        self._registry = registry
        self._meters = meters
        self._cores = Cores(settings.pairs)
        self._pairs = [PlacedPair(self._spec(index, resource, run_dir)) for index in range(settings.pairs)]
        self._draining = False

    def _spec(self, index: int, resource: str, run_dir: Path) -> PairSpec:
        return pair_spec(self._settings, index, resource, run_dir, self._cores)

    @property
    def pairs(self) -> tuple[PairStatus, ...]:
        """The latest status of every pair."""
        return tuple(pair.status for pair in self._pairs)

    @property
    def ready(self) -> bool:
        """Some pair serves: one that cannot must not take the others from their users."""
        return any(pair.status.ready for pair in self._pairs)

    async def run(self) -> None:
        """Places every pair and follows it until cancelled.

        Raises:
            ExceptionGroup: of a NoPairLeftError, after the failure was announced.
        """
        await self._publish()
        async with asyncio.TaskGroup() as group:
            for pair in self._pairs:
                group.create_task(self._follow(pair))

    async def _follow(self, pair: PlacedPair) -> None:
        """Keeps one pair running until it is given up."""
        settings = self._settings
        limits = Limits(settings.startup_s, settings.stuck_s)
        target, drafter = Patience(limits), Patience(limits)
        restarts = Restarts(settings.restart_limit, settings.restart_window_s)
        await self._place(pair)
        while True:
            before = pair.status
            await self._look(pair)
            if pair.spec.drafter is not None and (reason := drafter.look(pair.drafter)):
                self._unhealthy(pair, "drafter", reason)
                pair.replace_drafter()
                drafter.begin()
            if reason := target.look(pair.target):
                self._unhealthy(pair, "target", reason)
                pair.end()
                pair.status = replace(pair.status, target_restarts=pair.status.target_restarts + 1)
            if restarts.exceeded(pair.status.target_restarts):
                return await self._give_up(pair)
            if reason:
                await self._publish()
                await self._place(pair)
                target.begin()
                drafter.begin()
            if pair.status != before:
                await self._publish()
                self._judge(before, pair.status)
            gone = not pair.status.address and before.address
            await asyncio.sleep(settings.restart_backoff_s if gone else settings.poll_s)

    async def _look(self, pair: PlacedPair) -> None:
        try:
            await pair.refresh()
        except StraddledPairError:
            logger.exception("pair straddles GPUs, placing it again", extra={"pair": pair.spec.pair_id})
            self._meters[pair.spec.pair_id].failed("straddled")
            await pair.drain(self._settings.drain_s)
            await self._place(pair)

    def _unhealthy(self, pair: PlacedPair, service: str, reason: str) -> None:
        told = {"pair": pair.spec.pair_id, "unhealthy": service, "reason": reason}
        logger.error("a service stays unhealthy and is started anew", extra=told)
        self._meters[pair.spec.pair_id].failed("unhealthy")

    async def _give_up(self, pair: PlacedPair) -> None:
        """Leaves a pair that does not stay up, for the sake of those beside it.

        Raises:
            NoPairLeftError: none is beside it.
        """
        pair.end()
        old, settings = pair.status, self._settings
        failure = f"given up after {settings.restart_limit} restarts within {settings.restart_window_s:.0f} s"
        pair.status = replace(old, failure=f"{failure}: {old.failure}" if old.failure else failure, final=True)
        self._meters[old.pair_id].failed("given_up")
        await self._publish()
        logger.error(pair.status.failure, extra={"pair": old.pair_id})
        self._end_without_pairs(pair.status)

    def _judge(self, before: PairStatus, now: PairStatus) -> None:
        if now.ready != before.ready and not self._draining:
            level, what = (logging.INFO, "is ready") if now.ready else (logging.WARNING, "is ready no more")
            logger.log(level, "a pair %s", what, extra={"pair": now.pair_id, "restarts": now.target_restarts})
        if now.failure and now.failure != before.failure:
            logger.error(now.failure, extra={"pair": now.pair_id, "final": now.final})
            if now.final:
                self._meters[now.pair_id].failed("refused")
        if now.final:
            self._end_without_pairs(now)

    def _end_without_pairs(self, last: PairStatus) -> None:
        if all(self._state(pair.status) == "failed" for pair in self._pairs):
            raise NoPairLeftError(f"{last.pair_id}: {last.failure}")

    async def _place(self, pair: PlacedPair) -> None:
        """Waits for room: the nodes of a cluster come up one after another."""
        meter = self._meters[pair.spec.pair_id]
        while True:
            try:
                await pair.place()
                return meter.placed()
            except TimeoutError:
                meter.failed("no_room")
                pair.status = replace(pair.status, failure="no node has room for it yet")
                await self._publish()
                logger.warning("no node has room for a pair yet", extra={"pair": pair.spec.pair_id})

    async def _publish(self) -> None:
        entries = [self._entry(pair.status) for pair in self._pairs]
        for entry in entries:
            self._meters[entry.pair_id].announced(entry)
        await self._registry.publish(entries)

    def _entry(self, status: PairStatus) -> PairEntry:
        state = self._state(status)
        return PairEntry(
            pair_id=status.pair_id,
            target_address="" if state == "failed" else status.address,
            model=self._settings.model_name,
            state=state,
            gpu_uuids=status.gpu_uuids,
            target_restarts=status.target_restarts,
            drafter_restarts=status.drafter_restarts,
            metrics_address=status.metrics,
            message=status.failure,
            gpu_sharing=status.gpu_sharing,
        )

    def _state(self, status: PairStatus) -> State:
        if status.final and not status.ready:
            return "failed"
        if self._draining:
            return "draining"
        if status.ready:
            return "ready"
        return "starting" if status.address or not status.target_pid else "down"

    async def drain(self) -> None:
        """Announces the end, lets targets finish, frees every bundle."""
        self._draining = True
        await self._publish()
        await asyncio.gather(*(pair.drain(self._settings.drain_s) for pair in self._pairs))
        self._cores.close()
