"""Masks of one request by several threads: each takes some rows that lie side by side, with a matcher of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

from llguidance import LLMatcher
from numpy.typing import NDArray

Array = NDArray[Any]
LEAST_ROWS = 4
"""That are worth a thread: waking one takes as long as one row or two."""


class Twin:
    """A matcher that follows a request's tokens when it is needed; it shares no lock with that of the request."""

    def __init__(self, origin: LLMatcher) -> None:
        """Begins as a copy of one that has seen nothing."""
        self._origin = origin
        self._matcher, self._count = origin.deep_copy(), 0

    def behind(self, seen: Sequence[int]) -> LLMatcher:
        """The matcher behind all tokens of the request's answer."""
        if self._count < len(seen):
            self._matcher.consume_tokens([*seen[self._count :]])
            self._count = len(seen)
        return self._matcher

    def renew(self) -> None:
        """Begins again: the library never leaves an error."""
        self._matcher, self._count = self._origin.deep_copy(), 0


class Twins:
    """Those of one request, by what they are copies of; copies of the same wait for one another."""

    def __init__(self, origins: Sequence[LLMatcher]) -> None:
        """Takes matchers that have seen nothing, which were compiled apart."""
        self._twins = {id(one): Twin(one) for one in origins}

    def take(self, taken: set[int], most: int) -> list[Twin]:
        """Twins that wait for none of the `taken` ones; they are taken then."""
        found = [*islice((origin for origin in self._twins if origin not in taken), most)]
        taken.update(found)
        return [self._twins[origin] for origin in found]


@dataclass(frozen=True, slots=True)
class Share:
    """Rows behind the drafts `before` and behind each of `drafts`; without a twin the request's own matcher masks."""

    matcher: LLMatcher
    twin: Twin | None
    seen: Sequence[int]
    before: Sequence[int]
    drafts: Sequence[int]
    masks_WN: Array

    def make(self) -> bool:
        """Writes the masks; False where the library did not write all of them, as at some ends of a grammar."""
        matcher = self.matcher if self.twin is None else self.twin.behind(self.seen)
        consumed = matcher.try_consume_tokens([*self.before]) if self.before else 0
        fits = consumed == len(self.before)
        if fits:
            fits = masked(matcher, self.drafts, self.masks_WN)
        if consumed and not matcher.is_error():
            matcher.rollback(consumed)
        if self.twin is not None and matcher.is_error():
            self.twin.renew()
        return fits


def masked(matcher: LLMatcher, drafts: Sequence[int], masks_WN: Array) -> bool:
    """Masks all rows by one call, which lets go of Python's lock; False where the library stopped before the last."""
    masks_WN[len(drafts)] = 0
    compute = matcher.unsafe_compute_mask_ptr_with_draft_token  # type: ignore[attr-defined]  # of its stub
    compute(masks_WN.ctypes.data, masks_WN[0].nbytes, [*drafts])
    return not matcher.is_error() and bool(masks_WN[len(drafts)].any())


def shared(
    matcher: LLMatcher, twins: Sequence[Twin], seen: Sequence[int], drafts: Sequence[int], masks_WN: Array
) -> list[Share]:
    """Parts of the rows behind drafts that the rule allows, alike in size: one of the request's matcher, and twins'."""
    holders, rows = [None, *twins], len(drafts) + 1
    edges = pairwise(rows * part // len(holders) for part in range(len(holders) + 1))
    return [
        Share(matcher, twin, seen, drafts[:first], drafts[first : end - 1], masks_WN[first:end])
        for twin, (first, end) in zip(holders, edges, strict=True)
    ]


def done(threads: ThreadPoolExecutor, work: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each call returns; the first is made here, all others by threads meanwhile."""
    waited = [threads.submit(one) for one in work[1:]]
    return [*(one() for one in work[:1]), *(one.result() for one in waited)]
