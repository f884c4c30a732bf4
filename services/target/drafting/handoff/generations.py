"""Generations: numbers of attachments. With flags a number also decides which flags an attachment uses."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, islice

from services.common.request.errors import Code, PacelineError, Reason


class Generations:
    """Ascending numbers from 1; none is handed out twice."""

    def __init__(self) -> None:
        """Nothing is taken yet."""
        self._numbers = count(1)

    def take(self) -> int:
        """The next number."""
        return next(self._numbers)

    def free(self, generation: int) -> None:
        """Notes that no drafter acts for this number, because none accepted it; its number is not used again."""

    def end(self, generation: int, gone: Callable[[], bool]) -> None:
        """The attachment is over; `gone` tells whether its drafter's process is known to have ended."""


class FlagGenerations(Generations):
    """Leaves out numbers whose flags the drafter of an earlier attachment may still write.

    A drafter that was given up and not killed can go on at any time and write an old round into its flags.
    """

    def __init__(self, pairs: int) -> None:
        """Generations that are equal modulo `pairs` use the same flags."""
        super().__init__()
        self._pairs = pairs
        self._owned: set[int] = set()

    def take(self) -> int:
        """The next number whose flags no earlier one owns; it owns them until `free` or `end` gives them up.

        Raises:
            PacelineError: every pair of flags has an owner.
        """
        for generation in islice(self._numbers, self._pairs):
            if generation % self._pairs not in self._owned:
                self._owned.add(generation % self._pairs)
                return generation
        message = f"{self._pairs} drafters were given up and may live on: no flags are left for another one"
        raise PacelineError(Code.RESOURCE_EXHAUSTED, Reason.ATTACH_REFUSED, message)

    def free(self, generation: int) -> None:
        """Gives up the flags of a number: no drafter writes them any more."""
        self._owned.discard(generation % self._pairs)

    def end(self, generation: int, gone: Callable[[], bool]) -> None:
        """Gives up the flags if their writer is gone; otherwise they stay owned as long as this target lives."""
        if gone():
            self.free(generation)
