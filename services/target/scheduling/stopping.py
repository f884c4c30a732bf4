"""Cuts the tokens that a round chose at the request's end, and says why it ends.

The device applies the same rule; the host applies it again, so that no runner can overrun a request.
"""

from collections.abc import Sequence
from typing import NamedTuple

from services.common.request.sampling import FinishReason, StopParams


class Resolved(NamedTuple):
    """How many tokens are kept, and why the request ends after them; None when it goes on."""

    kept: int
    end: FinishReason | None


def stop_ids(stopping: StopParams, eos: frozenset[int]) -> frozenset[int]:
    """Token ids that end a request."""
    ids = frozenset(stopping.stop_token_ids)
    return ids if stopping.ignore_eos else ids | eos


def apply_stop_conditions(
    tokens: Sequence[int],
    generated: int,
    stopping: StopParams,
    ends: frozenset[int],
    room: int,
) -> Resolved:
    """Cuts `tokens`, chosen after `generated` output tokens, with space for `room` more in the context.

    A stop token is kept as the last one; before `min_tokens` it does not end the request. When several reasons hold at
    one position, a stop token counts before length, and length before context.
    """
    most = min(stopping.max_tokens - generated, room, len(tokens))
    for index in range(most):
        if tokens[index] in ends and generated + index + 1 > stopping.min_tokens:
            return Resolved(index + 1, FinishReason.STOP_TOKEN)
    if generated + most >= stopping.max_tokens:
        return Resolved(most, FinishReason.LENGTH)
    if most >= room:
        return Resolved(most, FinishReason.CONTEXT)
    return Resolved(most, None)
