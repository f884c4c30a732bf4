"""One pair: a placement group with one bundle, a target actor and a drafter actor in it."""

import asyncio
import math
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Any, cast

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from deploy.cluster.actors import DrafterActor, TargetActor
from deploy.cluster.report import ActorReport, Answer, Missing
from services.drafter.settings import DrafterSettings
from services.target.settings import TargetSettings

# A drafter that does not answer yet must not keep back what its target says.
DRAFTER_S = 0.5
ANSWER_S = 5.0


class StraddledPairError(RuntimeError):
    """Target and drafter of a pair see different GPUs."""


@dataclass(frozen=True)
class PairStatus:
    """What the controller knows of a pair. address is empty while the target is not up.

    failure tells why the pair does not serve, in one line; final, that it will not by itself.
    """

    pair_id: str
    address: str = ""
    metrics: str = ""
    ready: bool = False
    gpu_uuids: tuple[str, ...] = ()
    drafter_gpu_uuids: tuple[str, ...] = ()
    gpu_sharing: str = ""
    target_pid: int = 0
    drafter_pid: int = 0
    target_restarts: int = 0
    drafter_restarts: int = 0
    failure: str = ""
    final: bool = False


@dataclass(frozen=True)
class ActorKinds:
    """The Ray actor classes of a pair; tests of placement put light ones here."""

    target: Any = TargetActor
    drafter: Any = DrafterActor


@dataclass(frozen=True)
class PairSpec:
    """How to place one pair: on which part of one of a resource. drafter is None for a pair without one."""

    pair_id: str
    target: TargetSettings
    drafter: DrafterSettings | None
    resource: str
    target_share: float
    amount: float = 1.0

    @property
    def parts(self) -> tuple[float, float, float]:
        """What the pair, its target and its drafter take of the resource, of which Ray hands out ten-thousandths."""
        whole = math.floor(self.amount * 10_000)
        target = round(whole * self.target_share)
        return whole / 10_000, target / 10_000, (whole - target) / 10_000


class PlacedPair:
    """Keeps the two actors of a pair in one bundle and watches them."""

    def __init__(self, spec: PairSpec, kinds: ActorKinds | None = None) -> None:
        self.spec = spec
        self._kinds = kinds or ActorKinds()
        self.status = PairStatus(spec.pair_id)
        self._group: PlacementGroup | None = None
        self._target: Any = None
        self._drafter: Any = None
        self._asking: asyncio.Task[Answer] | None = None
        self.target: Answer = Missing.UNASKED
        """What the target said last."""
        self.drafter: Answer = Missing.UNASKED
        """What the drafter said last; UNASKED, too, while its answer is awaited."""

    async def place(self, timeout_s: float = 60.0) -> None:
        """Reserves the bundle and starts both actors.

        Raises:
            TimeoutError: when no node has room for the bundle.
        """
        whole, target, drafter = self.spec.parts
        self._group = placement_group([{self.spec.resource: whole}], strategy="STRICT_PACK")
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wrap_future(self._group.ready().future())
        except TimeoutError:
            remove_placement_group(self._group)
            raise
        if self.spec.drafter is not None:
            self._drafter = self._actor(self._kinds.drafter, drafter).remote(self.spec.drafter)
        self._target = self._actor(self._kinds.target, target).remote(self.spec.target)

    def _actor(self, kind: Any, share: float) -> Any:
        """Options that put an actor into bundle 0 with its share of the resource."""
        gpu = self.spec.resource == "GPU"
        return kind.options(
            num_cpus=0,
            enable_task_events=False,  # Ray would keep each look at the pair
            num_gpus=share if gpu else 0,
            resources=None if gpu else {self.spec.resource: share},
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                placement_group=self._group, placement_group_bundle_index=0
            ),
        )

    async def refresh(self) -> PairStatus:
        """Asks both actors and updates status; a dead one counts as a restart when it is back.

        Raises:
            StraddledPairError: when both are up and see different GPUs.
        """
        asking = self._asking = self._asking or asyncio.create_task(_report(self._drafter))
        try:
            self.target = await _report(self._target)
            await asyncio.wait([asking], timeout=DRAFTER_S)
        except asyncio.CancelledError:
            self._forget()
            raise
        self.drafter = Missing.UNASKED
        if asking.done():
            self.drafter, self._asking = asking.result(), None
        target, drafter = _known(self.target), _known(self.drafter)
        if target and drafter and target.gpu_uuids != drafter.gpu_uuids:
            raise StraddledPairError(f"{self.spec.pair_id}: {target.gpu_uuids} and {drafter.gpu_uuids}")
        self.status = _updated(self.status, target, drafter)
        return self.status

    def _forget(self) -> None:
        """Awaits no answer any more."""
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def replace_drafter(self) -> None:
        """Ends the drafter, whatever state it is in, and starts another one in its place."""
        self._forget()
        ray.kill(self._drafter, no_restart=True)
        self._drafter = self._actor(self._kinds.drafter, self.spec.parts[2]).remote(self.spec.drafter)
        self.status = replace(self.status, drafter_pid=0, drafter_restarts=self.status.drafter_restarts + 1)

    def end(self) -> None:
        """Ends both at once, whatever state they are in, and frees the bundle; place() begins anew.

        Ray kills what is in a bundle that is removed within a second, a stopped process too.
        """
        self._forget()
        if self._group is not None:
            remove_placement_group(self._group)
        for actor in (self._target, self._drafter):
            if actor is not None:
                ray.kill(actor, no_restart=True)
        self._group = self._target = self._drafter = None
        self.status = replace(self.status, address="", metrics="", ready=False, target_pid=0, drafter_pid=0)

    async def drain(self, timeout_s: float) -> None:
        """Lets the target finish, then ends both and frees the bundle; one that is not up yet has nothing to finish."""
        self._forget()
        for actor, up in ((self._target, self.status.address), (self._drafter, self.status.drafter_pid)):
            if actor is None:
                continue
            if up:
                await _drained(actor, timeout_s)
            ray.kill(actor, no_restart=True)
        if self._group is not None:
            remove_placement_group(self._group)


async def _drained(actor: Any, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await actor.drain.remote()
    except (TimeoutError, ray.exceptions.RayError):
        pass


async def _report(actor: Any) -> Answer:
    if actor is None:
        return Missing.UNASKED
    try:
        # Not wait_for: before Python 3.12 it swallows the end of a task whose answer comes at the same moment.
        async with asyncio.timeout(ANSWER_S):
            return await cast("Awaitable[ActorReport]", actor.report.remote())
    except TimeoutError:
        return Missing.SILENT
    except ray.exceptions.RayError:
        return Missing.GONE


def _known(answer: Answer) -> ActorReport | None:
    return None if isinstance(answer, Missing) else answer


def _updated(old: PairStatus, target: ActorReport | None, drafter: ActorReport | None) -> PairStatus:
    """The next status; a pid that changed is a restart."""
    if target is None:
        new = replace(old, address="", metrics="", ready=False)
    else:
        failure = target.failure or (drafter.failure if drafter is not None else None)
        new = replace(
            old,
            address=target.bound.grpc,
            metrics=target.bound.metrics,
            ready=target.ready,
            gpu_uuids=target.gpu_uuids,
            gpu_sharing=target.gpu_sharing,
            target_pid=target.pid,
            target_restarts=old.target_restarts + (old.target_pid not in (0, target.pid)),
            failure=failure.message if failure is not None else "",
            final=failure is not None and failure.final,
        )
    if drafter is None:
        return new
    return replace(
        new,
        drafter_pid=drafter.pid,
        drafter_gpu_uuids=drafter.gpu_uuids,
        drafter_restarts=old.drafter_restarts + (old.drafter_pid not in (0, drafter.pid)),
    )
