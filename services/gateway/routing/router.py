"""Chooses a target for a request; pure, with the random generator and all state handed in."""

import hashlib
import random
import struct
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence

from services.gateway.routing.crowd import HASHES, Candidate, Crowd, Fleet, hash_of
from services.gateway.routing.openings import Openings

PREFIX_BLOCK = 64
"""Tokens per step of the prefix memory."""

PREFIX_STEPS = 32
"""Steps of one prompt that are remembered; longer prompts share their first PREFIX_BLOCK * PREFIX_STEPS tokens."""


MEASURED = 8
"""Targets whose mean load a target that knows a prompt is compared with: one or two say little of the fleet."""


GOLDEN = 0.6180339887498949
"""The golden ratio's part behind the point: its multiples lie evenly in [0, 1) however many there are."""


QUEUED_TOKENS_UNIT = 8192
"""Queued prompt tokens that count as a target filled once."""
PLAIN_PENALTY = 0.5
"""What a target counts as fuller while it decodes plainly."""
AFFINITY_SLACK = 0.55
"""How much fuller than others a target may be that knows a prompt's beginning."""
AFFINITY_ENTRIES = 65536
"""Beginnings that are remembered."""


def score(candidate: Candidate) -> float:
    """Load of a target: requests per slot, queued prompt tokens, and a penalty while it decodes plainly."""
    requests = candidate.running + candidate.waiting + candidate.dispatched
    tokens = candidate.queued_tokens / QUEUED_TOKENS_UNIT
    return requests / max(candidate.slots, 1) + tokens + (0.0 if candidate.speculating else PLAIN_PENALTY)


class PrefixMemory:
    """Which target saw a prompt's beginning last; bounded, the least recently used forgotten first."""

    def __init__(self, entries: int) -> None:
        """Remembers at most `entries` beginnings."""
        self._entries = entries
        self._pairs: OrderedDict[bytes, str] = OrderedDict()

    def __len__(self) -> int:
        """How many beginnings of prompts are remembered, each with its pair."""
        return len(self._pairs)

    def find(self, digests: Sequence[bytes]) -> tuple[str, float] | None:
        """The target of the longest known beginning and the share of the prompt's steps that it covers."""
        for length in range(len(digests), 0, -1):
            pair_id = self._pairs.get(digests[length - 1])
            if pair_id is not None:
                return pair_id, length / len(digests)
        return None

    def note(self, digests: Sequence[bytes], pair_id: str) -> None:
        """Records where a prompt went."""
        for digest in digests:
            self._pairs[digest] = pair_id
            self._pairs.move_to_end(digest)
        while len(self._pairs) > self._entries:
            self._pairs.popitem(last=False)


def prefix_digests(token_ids: Sequence[int], salt: bytes) -> tuple[bytes, ...]:
    """Digests of the prompt's beginnings, one for every full block, salted by tenant."""
    digests: list[bytes] = []
    running = hashlib.sha256(salt)
    steps = min(len(token_ids) // PREFIX_BLOCK, PREFIX_STEPS)
    for step in range(steps):
        block = token_ids[step * PREFIX_BLOCK : (step + 1) * PREFIX_BLOCK]
        running.update(struct.pack(f"<{PREFIX_BLOCK}I", *block))
        digests.append(running.digest())
    return tuple(digests)


class Router:
    """Power of two choices over the score, bent towards the target that holds the prompt's beginning.

    What this gateway remembers comes first. What it does not, such as a chat whose last turn went through another
    gateway or through this one before a restart, it looks for where every gateway would have placed it. Blocks that
    many prompts begin with, a system prompt's, lie on every target soon and say nothing of where one belongs.
    """

    def __init__(self, generator: random.Random, revisions: Mapping[str, float] | None = None, own: str = "") -> None:
        """Starts without memory of prompts.

        `revisions` are weights of checkpoints by how their revision begins; without any, all targets are one fleet.
        Targets whose id begins with `own` come before all others.
        """
        self._revisions, self.own = revisions or {}, own
        self._generator = generator
        self._memory = PrefixMemory(AFFINITY_ENTRIES)
        self._openings = Openings()
        self._turn = generator.random()

    def choose(
        self,
        candidates: Fleet | Sequence[Candidate],
        digests: Sequence[bytes],
        key: str = "",
        avoid: Collection[str] = (),
        numerics: str = "",
        opening: bytes = b"",
    ) -> Candidate | None:
        """Picks a target, or None when there is no candidate.

        Args:
            candidates: targets that take requests.
            digests: prefix_digests of the prompt.
            key: tenant and idempotency key; equal keys meet on one target.
            avoid: pairs that just failed this request; taken only when nothing else is left.
            numerics: how the output so far was computed: of the pairs that are not to be avoided, those that compute
                so are taken where there are any; empty without output.
            opening: what all turns of the request's chat have in common and no other chat has, salted as the digests
                are; empty where it is not known.
        """
        fleet = candidates if isinstance(candidates, Fleet) else Fleet(candidates, self.own)
        if avoid or numerics:
            fleet = self._fit(fleet, avoid, numerics)
        usable, way = fleet.all, self._way(digests, opening)
        if not numerics and self._revisions:
            usable = self._of_one_revision(fleet, key.encode() or b"".join(way[:1]))
        if not usable:
            return None
        chosen = usable.homes(key.encode(), 1)[0] if key else self._by_load(self._near(fleet, usable), way)
        self._memory.note(way, chosen.pair_id)
        return chosen

    def _way(self, digests: Sequence[bytes], opening: bytes) -> Sequence[bytes]:
        """Names of a prompt's own beginnings: that of its home, then the others, the longest last."""
        own = digests[self._openings.shared(digests) :] if digests else digests
        if not opening:
            return own
        shared = self._openings.shared((opening, *own))
        return own[shared - 1 :] if shared else (opening, *own, opening)

    @staticmethod
    def _fit(fleet: Fleet, avoid: Collection[str], numerics: str) -> Fleet:
        """What is left for a request that failed or moves."""
        members = fleet.all.members
        others = [one for one in members if one.pair_id not in avoid] or members
        return fleet.only([one for one in others if one.numerics == numerics] or others if numerics else others)

    @staticmethod
    def _near(fleet: Fleet, usable: Crowd[Candidate]) -> Crowd[Candidate]:
        """Those beside this gateway, where it has any."""
        if not fleet.near or usable is fleet.all:
            return fleet.near or usable
        return Crowd(one for one in fleet.near.members if usable.find(one.pair_id)) or usable

    def _by_load(self, usable: Crowd[Candidate], way: Sequence[bytes]) -> Candidate:
        some = self._generator.sample(usable.members, min(MEASURED if way else 2, len(usable)))
        best = min(some[:2], key=score)
        if not way:
            return best
        bound = sum(map(score, some)) / len(some) + AFFINITY_SLACK
        for one in self._friends(usable, way):
            if score(one) <= bound:
                return one
        return best

    def _friends(self, usable: Crowd[Candidate], way: Sequence[bytes]) -> Iterator[Candidate]:
        """Targets that may hold the prompt's beginning, the likeliest first."""
        known = self._memory.find(way)
        remembered = None if known is None else usable.find(known[0])
        if remembered is not None:
            yield remembered
        yield from usable.homes(way[0])

    def _of_one_revision(self, fleet: Fleet, named: bytes) -> Crowd[Candidate]:
        """Those of the revision that the request belongs to, by weight; a chat and a key keep theirs.

        Requests without a name take turns in steps of the golden ratio, so that few of them have the weights' shares.
        """
        weights = {revision: self._weight_of(revision) for revision in fleet.revisions}
        present = {revision: weight for revision, weight in weights.items() if weight > 0}
        if not present:
            return fleet.all
        self._turn = (self._turn + GOLDEN) % 1.0
        point = hash_of(named.hex()) / HASHES if named else self._turn
        left = point * sum(present.values())
        for revision in sorted(present):
            left -= present[revision]
            if left < 0:
                break
        return fleet.revisions[revision]

    def _weight_of(self, revision: str) -> float:
        return next((share for start, share in self._revisions.items() if revision.startswith(start)), 0.0)
