"""Sizes of the scheduler, fixed before the first round."""

from dataclasses import dataclass

from services.target.scheduling.waiting import AGEING_S

PAUSE_S = 0.12
"""Seconds for which rows that decode may wait for the prompts of a burst: two whole packs of Qwen3-4B on an H100."""


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """Sizes of the scheduler. At most `look_ahead` rounds are planned behind one that is not committed.

    `chunk_tokens` bounds the prompt tokens of a round, so that prefill cannot hold up decoding, and `pack_tokens` those
    of one without rows or in a burst (`BurstPause`). With `mixed_tokens` a burst's rows are computed in one forward
    with so many. All count whole segments of `segment` tokens.

    Without `preemption` a request gets all blocks that it can ever need when it is admitted. With `open_ended` those
    that may fill the context grow all the same, where the pool has less than a context for every slot.
    """

    slots: int
    context_limit: int
    buckets: tuple[int, ...]
    chunk_tokens: int = 512
    pack_tokens: int = 0
    mixed_tokens: int = 0
    segment: int = 1
    pause_s: float = PAUSE_S
    burst_rows: int = 64
    max_waiting: int = 1024
    max_queued_tokens: int = 1 << 20
    look_ahead: int = 0
    preemption: bool = False
    open_ended: bool = False
    ageing_s: float = AGEING_S
    eos: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        """Raises ValueError when the buckets do not hold all slots."""
        if not self.buckets or list(self.buckets) != sorted(set(self.buckets)) or self.buckets[-1] < self.slots:
            raise ValueError(f"buckets {self.buckets} must rise and the last must hold {self.slots} slots")
        if min(self.slots, self.chunk_tokens, self.segment) < 1 or self.look_ahead < 0:
            raise ValueError("slots, chunk_tokens and segment must be positive, look_ahead not negative")

    def prompt_tokens(self, rows: bool, burst: bool) -> int:
        """Most prompt tokens of a round, with rows or without, in a burst or not."""
        if rows and burst and self.mixed_tokens:
            return self.mixed_tokens
        return max(self.chunk_tokens, self.pack_tokens if burst or not rows else 0)
