"""Chooses a target for a request; pure, with the random generator and all state handed in."""

import hashlib
import random
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

PREFIX_BLOCK = 64
"""Tokens per step of the prefix memory."""

PREFIX_STEPS = 32
"""Steps of one prompt that are remembered; longer prompts share their first PREFIX_BLOCK * PREFIX_STEPS tokens."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A target that takes requests, as its last load report and the gateway's own count describe it.

    `dispatched` counts requests sent since that report, which it cannot know yet; `numerics` says how it rounds.
    """

    pair_id: str
    running: int = 0
    waiting: int = 0
    slots: int = 1
    queued_tokens: int = 0
    speculating: bool = True
    dispatched: int = 0
    numerics: str = ""


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """Weights of the score, in units of a target filled once."""

    queued_tokens_unit: int = 8192
    plain_penalty: float = 0.5
    affinity_slack: float = 0.5
    affinity_entries: int = 65536


def score(candidate: Candidate, settings: RouterSettings) -> float:
    """Load of a target: requests per slot, queued prompt tokens, and a penalty while it decodes plainly."""
    requests = candidate.running + candidate.waiting + candidate.dispatched
    tokens = candidate.queued_tokens / settings.queued_tokens_unit
    return requests / max(candidate.slots, 1) + tokens + (0.0 if candidate.speculating else settings.plain_penalty)


def rendezvous(key: str, candidates: Sequence[Candidate]) -> Candidate:
    """The candidate that every gateway picks for this key (highest random weight, Thaler and Ravishankar 1998)."""
    return max(candidates, key=lambda one: hashlib.sha256(f"{key}\0{one.pair_id}".encode()).digest())


class PrefixMemory:
    """Which target saw a prompt's beginning last; bounded, the least recently used forgotten first."""

    def __init__(self, entries: int) -> None:
        """Remembers at most `entries` beginnings."""
        self._entries = entries
        self._pairs: OrderedDict[bytes, str] = OrderedDict()

    def __len__(self) -> int:
        """Beginnings remembered."""
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
        running.update(b"".join(token.to_bytes(4, "little") for token in block))
        digests.append(running.digest())
    return tuple(digests)


class Router:
    """Power of two choices over the score, bent towards the target that holds the prompt's beginning."""

    def __init__(self, settings: RouterSettings, generator: random.Random) -> None:
        """Starts without memory of prompts."""
        self._settings = settings
        self._generator = generator
        self._memory = PrefixMemory(settings.affinity_entries)

    def choose(
        self,
        candidates: Sequence[Candidate],
        digests: Sequence[bytes],
        key: str = "",
        avoid: Collection[str] = (),
        numerics: str = "",
    ) -> Candidate | None:
        """Picks a target, or None when there is no candidate.

        Args:
            candidates: targets that take requests.
            digests: prefix_digests of the prompt.
            key: tenant and idempotency key; equal keys meet on one target.
            avoid: pairs that just failed this request; taken only when nothing else is left.
            numerics: how the output so far was computed: of the pairs that are not to be avoided, those that compute
                so are taken where there are any; empty without output.
        """
        usable = [one for one in candidates if one.pair_id not in avoid] or list(candidates)
        usable = [one for one in usable if one.numerics == numerics] or usable
        if not usable:
            return None
        chosen = rendezvous(key, usable) if key else self._by_load(usable, digests)
        self._memory.note(digests, chosen.pair_id)
        return chosen

    def _by_load(self, usable: Sequence[Candidate], digests: Sequence[bytes]) -> Candidate:
        pair = self._generator.sample(usable, min(2, len(usable)))
        best = min(pair, key=lambda one: score(one, self._settings))
        known = self._memory.find(digests)
        if known is None:
            return best
        pair_id, share = known
        friend = next((one for one in usable if one.pair_id == pair_id), best)
        bound = score(best, self._settings) + self._settings.affinity_slack * share
        return friend if score(friend, self._settings) <= bound else best
