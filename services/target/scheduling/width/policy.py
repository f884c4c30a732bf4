"""What the scheduler asks a policy of widths, and the policy of one width."""

from collections.abc import Mapping, Sequence
from typing import Protocol


class WidthPolicy(Protocol):
    """Chooses the width of each round from the requests that decode."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths it may choose, rising; the first is 1."""

    def join(self, uid: int, cap: int | None, left: int | None = None) -> None:
        """A request starts to decode; drafts have up to `cap` tokens, `left` may follow its first one (None: any)."""

    def leave(self, uid: int) -> None:
        """A request stops decoding."""

    def observe(self, uid: int, drafted: int, accepted: int, ended: bool) -> None:
        """A row verified `drafted` drafts and accepted the first `accepted` of them."""

    def fitting(self, buckets: Sequence[int], rows: int, context: int = 0) -> int:
        """How many of `rows` that decode the next round has; one of `buckets`, which rise, holds all of them.

        A `context` is the number of tokens that rows have together, here and below.
        """

    def choose(self, bucket: int, rows: int, context: int = 0) -> int:
        """Width of the next round, in which `rows` requests decode."""

    def landed(self, bucket: int, width: int, committed: int, micros: float | None, context: int = 0) -> None:
        """A round committed `committed` tokens; `micros` is None when its duration must not be learned."""

    def plain_micros(self, bucket: int, context: int = 0) -> float:
        """Microseconds of a plain round of the bucket; 0 where none was measured."""


class FixedWidth:
    """One width for all rounds; plain while no request wants drafts."""

    def __init__(self, width: int, micros: Mapping[tuple[int, int], float] | None = None) -> None:
        """``micros`` by (bucket, width) are what warm-up measured."""
        self._micros = micros or {}
        self.widths = (1, width) if width > 1 else (1,)
        self._width = width
        self._caps: dict[int, int | None] = {}
        self._wanting = 0

    def join(self, uid: int, cap: int | None, left: int | None = None) -> None:
        """Counts a request that wants drafts."""
        self._caps[uid] = cap
        self._wanting += cap != 0

    def leave(self, uid: int) -> None:
        """Forgets a request."""
        self._wanting -= self._caps.pop(uid) != 0

    def observe(self, uid: int, drafted: int, accepted: int, ended: bool) -> None:
        """Nothing to learn."""

    def fitting(self, buckets: Sequence[int], rows: int, context: int = 0) -> int:
        """All of them."""
        return rows

    def choose(self, bucket: int, rows: int, context: int = 0) -> int:
        """The width, or 1."""
        return self._width if self._wanting else 1

    def landed(self, bucket: int, width: int, committed: int, micros: float | None, context: int = 0) -> None:
        """Nothing to learn."""

    def plain_micros(self, bucket: int, context: int = 0) -> float:
        """As warm-up measured it."""
        return self._micros.get((bucket, 1), 0.0)
