"""Which rows a round has, where it has not all of them."""

from bisect import bisect_left


class Turns:
    """Rows take turns in the order of their slots, so each is left out as seldom as any other."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, rows: tuple[int, ...], count: int) -> tuple[int, ...]:
        """Return `count` of the rows, fewer than all, in order: those that follow the last ones that were taken."""
        begin = bisect_left(rows, self._next) % len(rows)
        taken = (rows + rows)[begin : begin + count]
        self._next = taken[-1] + 1
        return tuple(sorted(taken))
