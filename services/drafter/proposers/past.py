"""What a tenant's answers said before, to be continued where a text itself has not said so: lookup beyond one text.

Tenants never meet: what one's text goes on with would otherwise be told by how many drafts of another's are accepted.
Callers without a tenant keep nothing. It is no state that anything relies on: a fresh drafter begins without.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from services.drafter.arena_view import ArenaView
from services.drafter.proposers import NO_DRAFT
from services.drafter.proposers.repeats import DOUBT, FALL, LEAST, OCCURRENCES, Repeats

KEY = 3
"""Tokens by which an answer's places are found; shorter suffixes are looked up in a text itself alone."""
TENANTS = 16
"""Those who kept an answer last."""
_COMPARED = 32
"""Latest places behind the same few tokens that are compared for longer suffixes."""
Place = tuple[list[int], int]
"""A text, and where what follows starts."""


@dataclass
class Generation:
    """Places of texts by the tokens before them, until there are as many as fit."""

    places: dict[tuple[int, ...], list[Place]] = field(default_factory=dict)
    size: int = 0


class Tenant:
    """Two generations of places: when the younger is full the elder goes, and with it the oldest texts."""

    def __init__(self, capacity: int) -> None:
        self._half = max(1, capacity // 2)
        self._young, self._old = Generation(), Generation()

    def add(self, text: list[int], tokens: Sequence[int]) -> None:
        """Put tokens at a text's end."""
        for token in tokens:
            text.append(token)
            if len(text) < KEY:
                continue
            if self._young.size >= self._half:
                self._young, self._old = Generation(), self._young
            self._young.places.setdefault(tuple(text[-KEY:]), []).append((text, len(text)))
            self._young.size += 1

    def behind(self, suffix: Sequence[int], own: Sequence[int] | None) -> list[Place]:
        """Return the latest places behind the last few tokens, latest first, in other texts, that something follows."""
        key = tuple(suffix[-KEY:])
        found = [*self._old.places.get(key, ())[-_COMPARED:], *self._young.places.get(key, ())[-_COMPARED:]]
        return [place for place in reversed(found) if place[0] is not own and place[1] < len(place[0])][:_COMPARED]


class Continued(NamedTuple):
    """Tokens that followed a suffix of `size` tokens, and the chance of each behind those before."""

    tokens: list[int]
    chances: list[float]
    size: int


NOTHING = Continued([], [], 0)


@dataclass
class _Followed:
    """The request of a slot, and how many of its tokens are kept; `text` begins with a few of its prompt."""

    epoch: int
    owner: int
    seen: int
    text: list[int]


class PastTexts:
    """Answers of the latest tenants, noted while they are written."""

    def __init__(self, capacity: int, longest: int) -> None:
        """`capacity` is in tokens of a tenant, `longest` the tokens of a suffix that are compared at most."""
        self._capacity, self._longest = capacity, longest
        self._tenants: OrderedDict[int, Tenant] = OrderedDict()
        self._slots: dict[int, _Followed] = {}

    def beside(self, found: Repeats, shared: ArenaView, rows_B: Tensor) -> Repeats:
        """Note what rows have said, and continue those of which an earlier answer has a longer suffix than they."""
        if shared.owner_S is None:
            return found
        count = found.tokens_BK.shape[1]
        for line, slot in enumerate(rows_B.tolist()):
            owner = int(shared.owner_S[slot])
            if not owner or (suffix := self._noted(shared, slot, owner)) is None:
                continue
            past = self.continued(owner, suffix, count, self._slots[slot].text)
            if past.size > int(found.size_B[line]):
                _put(found, line, past)
        return found

    def continued(self, owner: int, suffix: Sequence[int], count: int, own: Sequence[int] | None = None) -> Continued:
        """Return how a tenant's answers but `own` went on behind a suffix: as the most of the latest ones did."""
        tenant = self._tenants.get(owner)
        if tenant is None or len(suffix) < KEY:
            return NOTHING
        sized = [(_alike(text, start, suffix), text, start) for text, start in tenant.behind(suffix, own)]
        size = max((one for one, _, _ in sized), default=0)
        paths = [text[start : start + count] for one, text, start in sized if one == size][:OCCURRENCES]
        return _majority(paths, size) if paths else NOTHING

    def _noted(self, shared: ArenaView, slot: int, owner: int) -> list[int] | None:
        """Keep the tokens of a slot that are new, and return its text's last ones; None where there is no text."""
        assert shared.owner_S is not None
        epoch, length = int(shared.epoch_S[slot]), int(shared.history_length_S[slot])
        known = self._slots.get(slot)
        fresh = known is None or (known.epoch, known.owner) != (epoch, owner) or length < known.seen
        first = length if known is None or fresh else known.seen
        begin = max(0, first - self._longest)
        tokens = shared.history_SC[slot, begin : max(0, length)].tolist()
        # What was read is the owner's if the slot was not given away meanwhile.
        if not tokens or int(shared.owner_S[slot]) != owner:
            return None
        if known is None or fresh:
            known = self._slots[slot] = _Followed(epoch, owner, length, list(tokens))
        self._tenant(owner).add(known.text, tokens[first - begin :])
        known.seen = length
        return tokens[-self._longest :]

    def _tenant(self, owner: int) -> Tenant:
        tenant = self._tenants.setdefault(owner, Tenant(self._capacity))
        self._tenants.move_to_end(owner)
        while len(self._tenants) > TENANTS:
            self._tenants.popitem(last=False)
        return tenant


def _put(found: Repeats, line: int, past: Continued) -> None:
    """Let a row go on as an earlier answer did."""
    reached = len(past.tokens)
    found.tokens_BK[line] = NO_DRAFT
    found.tokens_BK[line, :reached] = torch.tensor(past.tokens)
    found.chances_BK[line] = 0.0
    found.chances_BK[line, :reached] = torch.tensor(past.chances)
    found.size_B[line] = past.size


def _alike(text: Sequence[int], start: int, suffix: Sequence[int]) -> int:
    """Return how many of the tokens before a place are the last of a suffix; the key's are."""
    most = min(start, len(suffix))
    return next((size for size in range(KEY, most) if text[start - 1 - size] != suffix[-1 - size]), most)


def _majority(paths: Sequence[list[int]], size: int) -> Continued:
    """Return the path that the others go on with for longest, up to where it is not likely, and its chances."""
    counts = [[sum(other[: at + 1] == path[: at + 1] for other in paths) for at in range(len(path))] for path in paths]
    best = max(range(len(paths)), key=lambda one: (sum(counts[one]), -one))
    chances, whole, before = list[float](), 1.0, len(paths)
    for at, agreeing in enumerate(counts[best]):
        chance = agreeing / before * max(0.0, 1.0 - DOUBT / (size + at + 1) ** FALL)
        whole, before = whole * chance, agreeing
        if whole < LEAST:
            break
        chances.append(chance)
    return Continued(paths[best][: len(chances)], chances, size if chances else 0)
