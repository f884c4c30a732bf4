"""The static shapes of a target: everything that graphs and buffers are sized by, fixed before the first round."""

from dataclasses import dataclass

_SHORT_CHUNKS = (32, 128, 512)


def buckets_of(slots: int) -> tuple[int, ...]:
    """How many rows a captured round may have: powers of two, until all slots fit."""
    buckets = [1]
    while buckets[-1] < slots:
        buckets.append(2 * buckets[-1])
    return tuple(buckets)


def chunks_of(longest: int) -> tuple[int, ...]:
    """How many tokens a captured chunk of a prompt may have."""
    return (*(chunk for chunk in _SHORT_CHUNKS if chunk < longest), longest)


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """Sizes of the runner's buffers and the shapes it captures.

    `blocks` counts the blocks that requests may own; tensors hold one more, block 0, where pad rows write. `snapshots`
    counts the places for recurrent states, of a model that has them.
    `prefill_chunks` are the static lengths a chunk of a prompt is padded to, ascending; the last is the longest chunk.
    `synthetic_acceptance` holds the shares of rounds that accept at least 1, 2, ... drafts, whatever the drafts are. It
    is for measurements, and empty when tokens matter. `eager` runs every step without a graph. `threads` is the number
    of threads of torch on a CPU; 0 leaves it alone.
    """

    slots: int
    blocks: int
    context_limit: int
    block_size: int = 16
    snapshots: int = 0
    widths: tuple[int, ...] = (1, 4, 8)
    buckets: tuple[int, ...] = (1, 2, 4, 8)
    prefill_chunks: tuple[int, ...] = (32, 128, 512)
    eos_ids: tuple[int, ...] = ()
    max_logprobs: int = 20
    threads: int = 1
    synthetic_acceptance: tuple[float, ...] = ()
    eager: bool = False

    def __post_init__(self) -> None:
        for name in ("widths", "buckets", "prefill_chunks"):
            values: tuple[int, ...] = getattr(self, name)
            if not values or values[0] < 1 or list(values) != sorted(set(values)):
                raise ValueError(f"{name} must be positive, ascending and distinct, not {values}")
        if self.widths[0] != 1:
            raise ValueError("widths must contain 1: a plain round needs it")

    @property
    def max_blocks(self) -> int:
        """Blocks that one request can own: the columns of a block table."""
        return -(-self.context_limit // self.block_size)

    @property
    def max_draft(self) -> int:
        """Longest draft K."""
        return self.widths[-1] - 1

    @property
    def pad_slot(self) -> int:
        """The slot that pad rows of a bucket point at."""
        return self.slots

    def bucket(self, rows: int) -> int:
        """The smallest bucket that holds `rows`."""
        return next(bucket for bucket in self.buckets if bucket >= rows)

    def chunk(self, tokens: int) -> int:
        """The smallest static chunk that holds `tokens`."""
        return next(chunk for chunk in self.prefill_chunks if chunk >= tokens)
