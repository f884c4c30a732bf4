"""The interface of a hand-off: when a draft may begin, how its end is signalled, and where the drafts go."""

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from services.common.pair.wire import Draft, Text
from services.common.request.errors import invalid_field

Fill = Callable[[int, int, int, int, int, int], None]
"""The call that drafts a round; takes the fields of an Ask."""


class Handoff(Protocol):
    """Calls before and after every draft of one attachment; each mode has one class."""

    def hold(self, stamp_2: Tensor, bucket: int) -> None:
        """Called at the head of a captured draft.

        What follows may read the inputs of the stamp's round and generation.
        """
        ...

    def begin(self, number: int, bucket: int, behind_prompts: bool) -> None:
        """Called before a draft; the round's inputs may be read after this, or after `hold` within the draft.

        With `behind_prompts` the round before it computes prompts.
        """
        ...

    def end(self, number: int) -> None:
        """Called after a draft: waits until the mailbox is filled, or enqueues the signal that it is."""
        ...

    def learn(self, texts: Sequence[Text], slots: Sequence[int]) -> None:
        """Takes new tokens of texts, and the rows of the round that is asked for.

        Raises:
            PacelineError: INVALID_FIELD: memory is shared, or a text or a slot does not fit.
        """
        ...

    def drafts(self, rows: int, width: int) -> Sequence[Draft]:
        """The drafts of the last round that the answer carries."""
        ...

    def serve(self, fill: Fill, observe: Callable[[float], object], core: int) -> None:
        """Starts to serve rounds that are asked for outside gRPC; `observe` is told the seconds of each draft."""
        ...

    def close(self) -> None:
        """Ends the hand-off: no draft runs after this, and the arena may be unmapped."""
        ...


class SharedMemory:
    """The base of the modes whose drafter reads the target's memory and fills its mailbox."""

    def learn(self, texts: Sequence[Text], slots: Sequence[int]) -> None:
        """Refuses: texts come only where no memory is shared.

        Raises:
            PacelineError: INVALID_FIELD, always.
        """
        raise invalid_field("texts", "this attachment shares memory: texts and rows are read there")

    def drafts(self, rows: int, width: int) -> Sequence[Draft]:
        """None: the target reads the mailbox."""
        return ()

    def serve(self, fill: Fill, observe: Callable[[float], object], core: int) -> None:
        """Does nothing: rounds are asked for by Pace."""

    def close(self) -> None:
        """Does nothing: no stream or thread waits."""
