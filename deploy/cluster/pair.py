"""One pair: a placement group with one bundle, a target actor and a drafter actor in it."""

import asyncio
import math
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Any, cast

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from deploy.cluster.actors import ActorReport, DrafterActor, TargetActor
from services.drafter.settings import DrafterSettings
from services.target.settings import TargetSettings

# A drafter that does not answer yet must not keep back what its target says.
DRAFTER_S = 0.5


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
            num_gpus=share if gpu else 0,
            resources=None if gpu else {self.spec.resource: share},
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                placement_group=self._group, placement_group_bundle_index=0
            ),
        )

    async def refresh(self, timeout_s: float = 5.0) -> PairStatus:
        """Asks both actors and updates status; a dead one counts as a restart when it is back.

        Raises:
            StraddledPairError: when both are up and see different GPUs.
        """
        asking = asyncio.create_task(_report(self._drafter, timeout_s))
        try:
            target = await _report(self._target, timeout_s)
            await asyncio.wait([asking], timeout=DRAFTER_S)
            drafter = asking.result() if asking.done() else None
        finally:
            asking.cancel()
        if target and drafter and target.gpu_uuids != drafter.gpu_uuids:
            raise StraddledPairError(f"{self.spec.pair_id}: {target.gpu_uuids} and {drafter.gpu_uuids}")
        self.status = _updated(self.status, target, drafter)
        return self.status

    async def drain(self, timeout_s: float) -> None:
        """Lets the target finish, then ends both and frees the bundle; one that is not up yet has nothing to finish."""
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


async def _report(actor: Any, timeout_s: float) -> ActorReport | None:
    if actor is None:
        return None
    try:
        # Not wait_for: before Python 3.12 it swallows the end of a task whose answer comes at the same moment.
        async with asyncio.timeout(timeout_s):
            return await cast("Awaitable[ActorReport]", actor.report.remote())
    except (TimeoutError, ray.exceptions.RayError):
        return None


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
