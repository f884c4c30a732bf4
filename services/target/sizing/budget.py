"""Memory budget: how many K/V blocks fit, decided before the pool is sized.

Terms are in bytes: fixed, per slot, and per token held. The drafter's terms are among them, because it uses the same
device.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.common.request.errors import Code, PacelineError, Reason

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MemoryTerms:
    """Named sizes in bytes."""

    fixed: Mapping[str, int] = field(default_factory=dict)
    per_slot: Mapping[str, int] = field(default_factory=dict)
    per_token: Mapping[str, int] = field(default_factory=dict)

    def plus(self, other: "MemoryTerms") -> "MemoryTerms":
        """Both lists together; a name may occur once."""
        return MemoryTerms(
            _joined(self.fixed, other.fixed),
            _joined(self.per_slot, other.per_slot),
            _joined(self.per_token, other.per_token),
        )

    def without_zeros(self) -> "MemoryTerms":
        """The terms that take memory."""
        return MemoryTerms(
            *(
                {name: size for name, size in part.items() if size}
                for part in (self.fixed, self.per_slot, self.per_token)
            )
        )

    @property
    def fixed_bytes(self) -> int:
        """Bytes that do not grow."""
        return sum(self.fixed.values())

    @property
    def slot_bytes(self) -> int:
        """What a further slot takes, in bytes."""
        return sum(self.per_slot.values())

    @property
    def token_bytes(self) -> int:
        """Bytes per token held."""
        return sum(self.per_token.values())


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """A plan for the memory; `blocks` is the pool without the pad block, which `total_bytes` includes."""

    terms: MemoryTerms
    slots: int
    blocks: int
    block_size: int
    total_bytes: int


def blocks_within(token_bytes: int, block_size: int, available_bytes: int) -> int:
    """Whole blocks that fit in `available_bytes`."""
    return max(0, available_bytes) // (token_bytes * block_size)


def plan_memory(
    terms: MemoryTerms, available_bytes: int, slots: int, block_size: int, max_blocks: int | None = None
) -> MemoryBudget:
    """Sizes the pool. Raises FAILED_PRECONDITION when not even one block fits beside the other terms.

    `max_blocks` caps the pool: blocks beyond every slot's longest request serve the prefix cache alone.
    """
    base = terms.fixed_bytes + slots * terms.slot_bytes
    fitting = blocks_within(terms.token_bytes, block_size, available_bytes - base)
    blocks = fitting - 1 if max_blocks is None else min(fitting - 1, max_blocks)
    block_bytes = terms.token_bytes * block_size
    if blocks < 1:
        needed = base + 2 * block_bytes
        raise PacelineError(
            Code.FAILED_PRECONDITION,
            Reason.INVALID_FIELD,
            f"memory_bytes: {available_bytes} are too few, {needed} are needed at least for {slots} slots",
            "memory_bytes",
        )
    return MemoryBudget(terms, slots, blocks, block_size, base + (blocks + 1) * block_bytes)


def context_within(limit: int, budget: MemoryBudget) -> int:
    """The most tokens of a request: `limit`, or what the whole pool holds where that is less.

    A request that names no limit of its own asks for the context. It would never run if that were more than the pool.
    What the pool holds is cut to a step of at most a sixteenth of it. So a few bytes more or less, which another start
    may find, leave the captured shapes and what was kept of them as they are.
    """
    held = budget.blocks * budget.block_size
    if held >= limit:
        return limit
    step = 1 << max(0, (held // 16).bit_length() - 1)
    cut = held - held % step
    _LOG.warning("the memory holds less than the context", extra={"asked": limit, "context_limit": cut})
    return cut


def _joined(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    shared = one.keys() & other.keys()
    if shared:
        raise ValueError(f"terms are named twice: {', '.join(sorted(shared))}")
    return {**one, **other}
