"""Where verify finds the drafts of a round: memory that the drafter writes, or that the target fills itself.

Suffixes: S slots + 1 (the last is the pad slot), K draft tokens.
"""

from dataclasses import dataclass
from typing import Self

from torch import Tensor

from services.common.pair import attach
from services.common.pair.arena import Arena


@dataclass(frozen=True, slots=True)
class Mailbox:
    """Tokens `[S, K]` i32 and tags `[S, 3]` i64: (round, epoch, generation) that each slot's tokens are for."""

    tokens_SK: Tensor
    tag_S3: Tensor

    @classmethod
    def shared(cls, arena: Arena) -> Self:
        """The mailbox in the arena, which the drafter writes."""
        return cls(arena.tensor(attach.TOKENS), arena.tensor(attach.TAG))

    @classmethod
    def private(cls, like: "Mailbox") -> Self:
        """An empty one of the same shape and device, in the target's own memory."""
        return cls(like.tokens_SK.new_zeros(like.tokens_SK.shape), like.tag_S3.new_zeros(like.tag_S3.shape))
