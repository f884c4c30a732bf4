"""What the scheduler asks a policy of widths, and the policy of one width."""

from collections import Counter, deque
from collections.abc import Sequence
from typing import Protocol

from services.target.core.width import Ragged, Width, evenly

KEPT = 32
"""Plain rounds of a bucket whose mean counts."""
STILL = 3.0
_RATE = 0.1


class ServedRounds:
    """Means of plain rounds by bucket, and which rounds tell nothing.

    A round of over `STILL` times what its kind usually takes stood still: something else had the processor. Such rounds
    come to plain ones and to others alike, but one plain round speaks for hundreds of others, so neither kind counts
    its own. All others count by their mean on both sides: where rounds scatter a median is shorter, and a gain of 2 %
    was told as a loss of 4.
    """

    def __init__(self) -> None:
        self._usual: dict[tuple[int, Width], float] = {}
        self._plain: dict[int, deque[float]] = {}

    def counts(self, bucket: int, width: Width, micros: float) -> bool:
        """Whether a round of so many microseconds tells something; learns what its kind usually takes."""
        cell = bucket, width
        usual = self._usual.get(cell, micros)
        self._usual[cell] = usual + _RATE * (min(micros, STILL * usual) - usual)
        return micros <= STILL * usual

    def plain(self, bucket: int, micros: float) -> None:
        """A plain round that counts, of short contexts."""
        self._plain.setdefault(bucket, deque(maxlen=KEPT)).append(micros)

    def mean(self, bucket: int) -> float:
        """Microseconds of a plain round; 0 while none was served that tells it."""
        served = self._plain.get(bucket)
        return sum(served) / len(served) if served else 0.0


SAMPLED = 256
"""Of so many rounds of a fixed width two are plain."""
_SAMPLE = (64, 65)


class WidthPolicy(Protocol):
    """Chooses the width of each round from the requests that decode."""

    @property
    def widths(self) -> tuple[Width, ...]:
        """Widths it may choose, rising, trees behind chains of as many rows; the first is 1."""

    def join(self, uid: int, cap: int | None, left: int | None = None) -> None:
        """A request starts to decode; drafts have up to `cap` tokens, `left` may follow its first one (None: any)."""

    def leave(self, uid: int) -> None:
        """A request stops decoding."""

    def observe(
        self, uid: int, drafted: int, accepted: int, ended: bool, path: Sequence[int] = (), trunk: Sequence[int] = ()
    ) -> None:
        """A row verified `drafted` drafts and accepted the first `accepted` of them.

        Of a tree those of rows `path`; the path of its first children begins with the rows `trunk`, at least one.
        """

    def missed(self, uid: int) -> None:
        """A row was asked for drafts and had none, as behind a lookup that finds nothing."""

    def fitting(self, buckets: Sequence[int], rows: int, context: int = 0) -> int:
        """How many of `rows` that decode the next round has; one of `buckets`, which rise, holds all of them.

        A `context` is the number of tokens that rows have together, here and below.
        """

    def choose(self, bucket: int, rows: int, context: int = 0) -> Width:
        """Width of the next round, in which `rows` requests decode."""

    def takes(self, width: Ragged, uids: Sequence[int]) -> tuple[int, ...]:
        """Rows of each of these requests in a round of so many together."""

    def landed(self, bucket: int, width: Width, committed: int, micros: float | None, context: int = 0) -> None:
        """A round committed `committed` tokens; `micros` is None when its duration must not be learned."""

    def plain_micros(self, bucket: int, context: int = 0) -> float:
        """Microseconds of the plain round that the round which landed last, of the bucket, is held against.

        0 where it is held against none: no plain one was served yet, or it says nothing of what drafts bring. A policy
        holds no round that it tried for what it learns, and none that stood still.
        """


class FixedWidth:
    """One width for all rounds; plain while no request wants drafts.

    Of `sampled` rounds in a bucket two are plain, from the 64th on: they tell what a plain round costs as served, with
    the load and the neighbours that the others have. 0: none. A plain round tells it if the one before was plain too.
    """

    def __init__(self, width: Width, sampled: int = 0) -> None:
        self.widths: tuple[Width, ...] = (1,) if width == 1 else (1, width)
        self._width = width
        self._sampled = sampled
        self._caps: dict[int, int | None] = {}
        self._wanting = 0
        self._rounds: Counter[int] = Counter()
        self._latest: dict[int, Width] = {}
        self._served = ServedRounds()
        self._tells = False

    def join(self, uid: int, cap: int | None, left: int | None = None) -> None:
        """Counts a request that wants drafts."""
        self._caps[uid] = cap
        self._wanting += cap != 0

    def leave(self, uid: int) -> None:
        """Forgets a request."""
        self._wanting -= self._caps.pop(uid) != 0

    def observe(
        self, uid: int, drafted: int, accepted: int, ended: bool, path: Sequence[int] = (), trunk: Sequence[int] = ()
    ) -> None:
        """Nothing to learn."""

    def missed(self, uid: int) -> None:
        """Nothing either."""

    def fitting(self, buckets: Sequence[int], rows: int, context: int = 0) -> int:
        """All of them."""
        return rows

    def choose(self, bucket: int, rows: int, context: int = 0) -> Width:
        """The width, or 1."""
        if not self._wanting:
            return 1
        self._rounds[bucket] += 1
        sample = self._sampled and self._rounds[bucket] % self._sampled in _SAMPLE
        return 1 if sample else self._width

    def takes(self, width: Ragged, uids: Sequence[int]) -> tuple[int, ...]:
        """As many for all."""
        return evenly(width, len(uids))

    def landed(self, bucket: int, width: Width, committed: int, micros: float | None, context: int = 0) -> None:
        """Learns what plain rounds take."""
        self._tells = micros is not None and self._served.counts(bucket, width, micros)
        if width == 1 == self._latest.get(bucket) and micros is not None and self._tells:
            self._served.plain(bucket, micros)
        self._latest[bucket] = width

    def plain_micros(self, bucket: int, context: int = 0) -> float:
        """The mean of the latest plain rounds that were served. Nothing ran beside those of warm-up."""
        return self._served.mean(bucket) if self._tells else 0.0
