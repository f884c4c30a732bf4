"""What Pace carries with hand-off by wire: drafts, and the tokens of texts where no memory is shared.

Suffixes: S slots + 1 (the last is the pad slot), K draft tokens.
"""

from collections.abc import Sequence
from typing import NamedTuple

MAX_ANSWER_BYTES = 1 << 20
"""Most bytes of an answer that a target takes: more than 1,024 rows of 127 drafts."""
MAX_MESSAGE_TOKENS = 1 << 18
"""Most tokens of texts in one message: some 1 MiB; longer texts take several."""
MAX_TEXT_TOKENS = 1 << 28
"""Most tokens that a drafter keeps for all slots of an attachment: 1 GiB."""


class Text(NamedTuple):
    """Tokens of a slot's text from position `start` on; all before it were sent for this epoch."""

    slot: int
    epoch: int
    start: int
    token_ids: Sequence[int]


class Draft(NamedTuple):
    """The draft of one row: the slot's epoch that was drafted for, and K tokens.

    Of a tree `parents` are the rows that they follow; a chain has none.
    """

    slot: int
    epoch: int
    token_ids: Sequence[int]
    parents: Sequence[int] = ()
