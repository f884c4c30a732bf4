"""How many log-probabilities answers keep that are sent whole."""

from services.common.request.errors import invalid_field, overloaded
from services.common.request.limits import LIMITS
from services.gateway.streams.events import Delta

MOST_OF_ALL = 16 * LIMITS.prompt_scores
"""Of all answers under way; as JSON each takes some 45 bytes."""

SOON_S = 1.0


class Kept:
    """Counts what all answers keep."""

    def __init__(self, most: int = MOST_OF_ALL) -> None:
        """Nothing is kept."""
        self._most, self._all = most, 0

    def free(self, count: int) -> None:
        """So many are kept no more."""
        self._all -= count

    def add(self, delta: Delta, before: int, field: str) -> int:
        """Adds those that a delta brings to those of its answer; gives how many it has now.

        Raises:
            PacelineError: INVALID_FIELD, one answer has too many; OVERLOADED, all together have.
        """
        more = sum(1 + one.alternatives for one in delta.logprobs)
        if before + more > LIMITS.prompt_scores:
            text = f"more than {LIMITS.prompt_scores} in one answer, with the tokens' own; stream it, or ask for fewer"
            raise invalid_field(field, text)
        if self._all + more > self._most:
            raise overloaded("answers under way keep too many log-probabilities", SOON_S)
        self._all += more
        return before + more


KEPT = Kept()
"""Of this process."""
