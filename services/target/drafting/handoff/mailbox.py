"""Where verify finds the drafts of a round: memory that the drafter writes, or that the target fills itself.

Suffixes: S slots + 1 (the last is the pad slot), K draft tokens.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from services.common.pair import attach
from services.common.pair.arena import Arena


@dataclass(frozen=True, slots=True)
class Mailbox:
    """Tokens `[S, K]` i32 and tags `[S, 3]` i64: (round, epoch, generation) that each slot's tokens are for.

    Where drafts are trees, `parents_SK` i32 has the row that each of them follows; the anchor's is 0.
    """

    tokens_SK: Tensor
    tag_S3: Tensor
    parents_SK: Tensor | None = None

    @classmethod
    def shared(cls, arena: Arena) -> Self:
        """The mailbox in the arena, which the drafter writes."""
        parents_SK = arena.tensor(attach.PARENTS) if attach.PARENTS in arena else None
        return cls(arena.tensor(attach.TOKENS), arena.tensor(attach.TAG), parents_SK)

    @classmethod
    def private(cls, like: "Mailbox") -> Self:
        """An empty one of the same shape and device, in the target's own memory."""
        parents_SK = None if like.parents_SK is None else torch.zeros_like(like.parents_SK)
        return cls(torch.zeros_like(like.tokens_SK), torch.zeros_like(like.tag_S3), parents_SK)
