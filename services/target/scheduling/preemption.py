"""Finds blocks for the next round where requests grow: rows get them, and young requests are preempted."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from services.target.cache.blocks import BlockPool
from services.target.cache.manager import KVCacheManager
from services.target.core.plan import Growth
from services.target.core.request import Request
from services.target.scheduling.settings import SchedulerSettings
from services.target.scheduling.slots import SlotTable

NOBODY = sys.maxsize
"""A limit that no request has."""


def grows_from(settings: SchedulerSettings, pool: BlockPool) -> int:
    """The limit in tokens from which requests grow; `NOBODY` where each gets all blocks when it is admitted."""
    if settings.preemption:
        return 0
    short = pool.total < settings.slots * pool.blocks_for(settings.context_limit)
    return settings.context_limit if settings.open_ended and short else NOBODY


@dataclass(frozen=True, slots=True)
class Grown:
    """Rows that have blocks for the round, the blocks they were given, and how many requests were preempted."""

    rows: tuple[int, ...]
    growths: tuple[Growth, ...]
    preempted: int


def grow_rows(
    roster: SlotTable, rows: tuple[int, ...], memory: KVCacheManager, ahead: int, preempt: Callable[[Request], None]
) -> Grown:
    """Gives every one of `rows` that grows blocks for `ahead` more tokens, the oldest by `Request.order` first.

    When blocks run out the youngest that grows is preempted, so the oldest goes on before all others that do. That may
    be one in prefill, or the row itself. A row waits a round where enough blocks were released, but rounds in flight
    may still touch them (`BlockPool.release`).
    """
    needy = []
    for slot in rows:
        request = roster.on(slot)
        assert request is not None, "a row belongs to a request"
        lacking = memory.lacking(request, min(request.limit, request.computed + ahead)) if request.grows else 0
        if lacking:
            needy.append((request.order, lacking, request))
    needy.sort()
    growths: list[Growth] = []
    stalled: set[int] = set()
    preempted = 0
    for _, lacking, request in needy:
        while request.slot is not None and lacking > memory.pool.available + memory.pool.coming:
            preempt(max((one for one in roster.running() if one.grows), key=_order))
            preempted += 1
        if request.slot is None:
            continue
        if lacking <= memory.pool.available:
            growths.append(Growth(request.slot, memory.grow(request, lacking)))
        else:
            stalled.add(request.slot)
    grown = tuple(slot for slot in rows if slot in roster.rows and slot not in stalled)
    return Grown(grown, tuple(growths), preempted)


def _order(request: Request) -> tuple[float, int]:
    return request.order
