"""The target's arena as a proposer sees it.

Suffixes: S slots + 1, C context tokens, N blocks of a slot, B rows, K draft tokens, V vocabulary, D hidden size.
"""

from dataclasses import dataclass, fields, replace

from torch import Tensor

from services.common.pair import attach
from services.common.pair.arena import Arena


@dataclass(frozen=True, slots=True)
class ArenaView:
    """Mapped tensors; all but the mailbox are read only. Those that may be None are not in every arena."""

    length_S: Tensor
    anchor_S: Tensor
    epoch_S: Tensor
    block_table_SN: Tensor
    history_SC: Tensor
    history_length_S: Tensor
    rows_B: Tensor
    tokens_SK: Tensor
    tag_S3: Tensor
    embed_VD: Tensor | None
    lm_head_VD: Tensor | None
    draft_kv: Tensor | None
    noise_TV: Tensor | None
    temperature_S: Tensor | None
    block_size: int
    seed_SD: Tensor | None = None
    parents_SK: Tensor | None = None
    owner_S: Tensor | None = None
    draw_seed_S: Tensor | None = None

    @classmethod
    def of(cls, arena: Arena, block_size: int) -> "ArenaView":
        """Looks the tensors up in an arena.

        Raises:
            KeyError: a tensor that every arena has is missing.
        """

        def optional(name: str) -> Tensor | None:
            return arena.tensor(name) if name in arena else None

        return cls(
            length_S=arena.tensor(attach.LENGTH),
            anchor_S=arena.tensor(attach.ANCHOR),
            epoch_S=arena.tensor(attach.EPOCH),
            block_table_SN=arena.tensor(attach.BLOCK_TABLE),
            history_SC=arena.tensor(attach.HISTORY),
            history_length_S=arena.tensor(attach.HISTORY_LENGTH),
            rows_B=arena.tensor(attach.ROWS),
            tokens_SK=arena.tensor(attach.TOKENS),
            tag_S3=arena.tensor(attach.TAG),
            embed_VD=optional(attach.EMBED),
            lm_head_VD=optional(attach.LM_HEAD),
            draft_kv=optional(attach.DRAFT_KV),
            seed_SD=optional(attach.SEED),
            noise_TV=optional(attach.NOISE),
            temperature_S=optional(attach.TEMPERATURE),
            block_size=block_size,
            parents_SK=optional(attach.PARENTS),
            owner_S=optional(attach.OWNER),
            draw_seed_S=optional(attach.DRAW_SEED),
        )

    @property
    def undrawn(self) -> "ArenaView":
        """The same without the seeds of noise: for rounds of which no row draws."""
        return replace(self, draw_seed_S=None)

    def tensors(self) -> list[Tensor]:
        """Every mapped tensor."""
        values = (getattr(self, field.name) for field in fields(self))
        return [value for value in values if isinstance(value, Tensor)]
