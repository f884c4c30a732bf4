"""Chats of five turns over several gateways that know nothing of one another, with the product's own router."""

import heapq
import random
from collections import Counter
from dataclasses import dataclass

from services.gateway.routing.crowd import Candidate, Fleet
from services.gateway.routing.router import PREFIX_BLOCK, Router, prefix_digests

TURNS, SLOTS, THINK_S = 5, 8, 5.0


@dataclass(frozen=True)
class Kind:
    """Blocks that all chats begin with, blocks of a chat's own in its first turn, and whether gateways see chats."""

    system: int = 0
    own: int = 2
    named: bool = False


OWN = Kind()


@dataclass(frozen=True)
class Outcome:
    """How often a turn met the pair of the turn before, and the fullest pair's share of all turns over the mean."""

    met: float
    spread: float


def simulate(
    gateways: int, pairs: int, chats: int, use: float, seed: int, restarts: bool = False, kind: Kind = OWN
) -> Outcome:
    """Requests take a second on average, `use` is the share of slots that are taken.

    Args:
        restarts: every gateway forgets what it knows half way through.
    """
    dice = random.Random(seed)
    fleet = [Candidate(f"pair-{index}", slots=SLOTS) for index in range(pairs)]
    routers = [Router(random.Random(seed + index)) for index in range(gateways)]
    events: list[tuple[float, int, int, int]] = []
    begun = 0.0
    for chat in range(chats):
        begun += dice.expovariate(use * SLOTS * pairs / TURNS)
        heapq.heappush(events, (begun, 1, chat, 0))
    known = Fleet(fleet)
    last: dict[int, str] = {}
    total: Counter[str] = Counter()
    by_id = {one.pair_id: one for one in fleet}
    met = later = 0
    while events:
        now, begins, number, turn = heapq.heappop(events)
        if not begins:
            fleet[number].running -= 1
            continue
        if restarts and begun and now > begun / 2:
            routers, restarts = [Router(random.Random(seed)) for _ in routers], False
        asked = [chats] * PREFIX_BLOCK * kind.system + [number] * PREFIX_BLOCK * (kind.own + 2 * turn)
        opening = number.to_bytes(8, "little") if kind.named else b""
        chosen = dice.choice(routers).choose(known, prefix_digests(asked, b""), opening=opening)
        assert chosen is not None
        by_id[chosen.pair_id].running += 1
        total[chosen.pair_id] += 1
        if turn:
            later += 1
            met += last[number] == chosen.pair_id
        last[number] = chosen.pair_id
        ends = now + dice.expovariate(1.0)
        heapq.heappush(events, (ends, 0, fleet.index(chosen), 0))
        if turn + 1 < TURNS:
            heapq.heappush(events, (ends + dice.expovariate(1 / THINK_S), 1, number, turn + 1))
    return Outcome(met / later, max(total.values()) * pairs / total.total())
