"""A hand-off as the drafter sees it: when a draft may begin, how its end is told, and where the drafts go."""

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from services.common.pair.wire import Draft, Text
from services.common.request.errors import invalid_field

Fill = Callable[[int, int, int, int, int], None]
"""Drafts a round; takes the fields of an Ask."""


class Handoff(Protocol):
    """Stands around every draft of one attachment; one class a mode."""

    def hold(self, stamp_2: Tensor, bucket: int) -> None:
        """At the head of a captured draft: what follows may read the inputs of the stamp's round and generation."""
        ...

    def begin(self, number: int, bucket: int) -> None:
        """The drafter may read the round's inputs after this, or in a draft that holds."""
        ...

    def end(self, number: int) -> None:
        """The mailbox is filled."""
        ...

    def learn(self, texts: Sequence[Text], slots: Sequence[int]) -> None:
        """Takes new tokens of texts, and the rows of the round that is asked for.

        Raises:
            PacelineError: INVALID_FIELD: memory is shared, or a text or a slot does not fit.
        """
        ...

    def drafts(self, rows: int, width: int) -> Sequence[Draft]:
        """What the answer carries of the round that was just drafted."""
        ...

    def serve(self, fill: Fill, observe: Callable[[float], object], core: int) -> None:
        """Drafts what is asked past gRPC from now on; `observe` is told the seconds of each draft."""
        ...

    def close(self) -> None:
        """No draft comes any more; the arena may be unmapped after this."""
        ...


class SharedMemory:
    """What holds in every mode whose drafter reads the target's memory and fills its mailbox."""

    def learn(self, texts: Sequence[Text], slots: Sequence[int]) -> None:
        """There is nothing to learn.

        Raises:
            PacelineError: INVALID_FIELD, always.
        """
        raise invalid_field("texts", "this attachment shares memory: texts and rows are read there")

    def drafts(self, rows: int, width: int) -> Sequence[Draft]:
        """The target reads the mailbox."""
        return ()

    def serve(self, fill: Fill, observe: Callable[[float], object], core: int) -> None:
        """Rounds are asked for by Pace."""

    def close(self) -> None:
        """Nothing waits."""
