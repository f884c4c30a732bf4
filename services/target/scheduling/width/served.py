"""What plain rounds take as they are served, against which rounds with drafts are held."""

from collections import deque

from services.target.core.width import Width

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
