"""Which rows a round has, where it has not all of them."""

from collections.abc import Sequence

from services.target.core.request import Request


class Turns:
    """Rows that got fewest tokens go first, and none is left out twice in a row while a round has half of them.

    What drafts bring is chance, so requests that began together come apart. Turns bring them together again. Tokens are
    counted from the lowest count of all when a request joins, so that a new one does not go before all others for long
    (the virtual token counter of Sheng et al. 2024).
    """

    def __init__(self) -> None:
        self._joined: dict[int, tuple[Request, int]] = {}
        self._left_out: frozenset[int] = frozenset()

    def join(self, request: Request) -> None:
        """A request starts to decode."""
        lowest = min((start + one.generated for one, start in self._joined.values()), default=0)
        self._joined[request.uid] = request, lowest - request.generated

    def leave(self, uid: int) -> None:
        """A request stops decoding."""
        del self._joined[uid]

    def take(self, rows: Sequence[int], count: int) -> tuple[int, ...]:
        """Return the slots of `count` requests that joined, of whom `rows` are all that decode, in order."""
        joined = {request.slot: (uid, start + request.generated) for uid, (request, start) in self._joined.items()}
        order = sorted(rows, key=lambda slot: (joined[slot][0] not in self._left_out, joined[slot][1]))
        self._left_out = frozenset(joined[slot][0] for slot in order[count:])
        return tuple(sorted(order[:count]))
