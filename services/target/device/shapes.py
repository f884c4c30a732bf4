"""The static shapes of a target: everything that graphs and buffers are sized by, fixed before the first round."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import torch

from services.common.model.spec import StackSpec
from services.target.core.width import Ragged, Tree, Width, order_of

VERIFY, SHORT_VERIFY, TREES, SHORT_TREES = "verify", "short verify", "trees", "short trees"
RAGGED, SHORT_RAGGED = "ragged", "short ragged"
"""Kinds of captured rounds, of chains, of trees, and of chains of any lengths.

A short one gives the same bits at every length, and takes less time at few positions.
"""

_WIDTHS_ON_CPU = (32, 64, 96)
_WIDTHS_IN_ORDER = (32, 128, 512, 2048)
_HALVED_FROM = 16
_SEGMENT, _COUNTS = 64, (1, 4, 8, 16, 24, 32, 40, 48, 56)
_WHOLE_WIDTHS, _WHOLE_COUNTS = (128, 512), (2, 4, 8, 16, 32)


class PackShape(NamedTuple):
    """A forward of prompts: so many segments of `width` rows, each of one prompt at consecutive positions.

    Behind them lies one row of each of `beside` slots that decode: such a pack is mixed.
    """

    segments: int
    width: int
    beside: int = 0

    @property
    def tokens(self) -> int:
        """Rows of prompts, padding included."""
        return self.segments * self.width

    @property
    def rows(self) -> int:
        """Rows of the forward, padding included."""
        return self.tokens + self.beside

    def holds(self, lengths: Sequence[int]) -> bool:
        """Whether prompt chunks of these lengths fit, each in segments of its own."""
        return sum(-(-length // self.width) for length in lengths) <= self.segments

    @property
    def whole(self) -> bool:
        """Whether a segment has a prompt of its own."""
        return False


class WholePack(PackShape):
    """A forward of prompts that have one segment each, because rows of a prompt must be computed in order."""

    __slots__ = ()

    def holds(self, lengths: Sequence[int]) -> bool:
        """Whether prompt chunks of these lengths fit."""
        return len(lengths) <= self.segments and max(lengths) <= self.width

    @property
    def whole(self) -> bool:
        """Whether a segment has a prompt of its own: each has."""
        return True


def buckets_of(slots: int) -> tuple[int, ...]:
    """How many rows a captured round may have, until all slots fit: powers of two, and of many rows the halves between.

    Where requests that began together end one by one, their rounds have half as many rows of padding.
    """
    buckets = [1]
    while buckets[-1] < slots:
        power = 1 << (buckets[-1].bit_length() - 1)
        halfway = power + power // 2
        buckets.append(halfway if power >= _HALVED_FROM and buckets[-1] < halfway else 2 * power)
    return tuple(buckets)


def packs_of(most: int, spec: StackSpec, device: torch.device) -> tuple[PackShape, ...]:
    """The packs that a target runs, for chunks of `most` tokens together.

    A recurrent state passes through the rows of a prompt in order, so they are one segment. A GPU captures each pack
    and hardly notices a few rows more; on a CPU every row takes its time, and so does reading a context per segment.
    """
    if spec.delta is not None:
        alone = tuple(PackShape(1, width) for width in (*(width for width in _WIDTHS_IN_ORDER if width < most), most))
        return alone if device.type == "cpu" else alone + _whole_packs(most)
    if device.type == "cpu":
        widths = *(width for width in _WIDTHS_ON_CPU if width < most), most
        return tuple(PackShape(count, width) for width in widths for count in range(1, most // width + 1))
    full = -(-most // _SEGMENT)
    return tuple(PackShape(count, _SEGMENT) for count in (*(count for count in _COUNTS if count < full), full))


def mixed_of(packs: Sequence[PackShape], beside: int, spec: StackSpec, device: torch.device) -> PackShape | None:
    """The largest pack, with as many segments less as make room for rows beside them, a quarter at most, on a GPU.

    Recurrent layers take a prompt and a row by different kernels, and a CPU would compute rows that no slot has.
    """
    largest = packs[-1]
    room = -(-beside // largest.width)
    if spec.delta is not None or device.type == "cpu" or 4 * room > largest.segments:
        return None
    return PackShape(largest.segments - room, largest.width, beside)


def _whole_packs(most: int) -> tuple[PackShape, ...]:
    return tuple(WholePack(count, width) for width in _WHOLE_WIDTHS for count in _WHOLE_COUNTS if count * width <= most)


def shorts_of(
    buckets: Sequence[int],
    widths: Sequence[int],
    spec: StackSpec,
    dtype: torch.dtype,
    device: torch.device,
    ragged: Sequence[Ragged] = (),
    coded: bool = False,
) -> frozenset[tuple[int, int]]:
    """The (bucket, width) that are captured once more, because attention to short contexts is cut otherwise.

    So is attention to `coded` keys and values.
    """
    if device.type == "cpu":
        return frozenset()
    # They need Triton, which machines without a GPU lack.
    from services.common.kernels.span_attention.alone.source import takes_row
    from services.common.kernels.span_attention.cut import cut_span
    from services.common.kernels.span_attention.hopper.cut import cut_codes, cut_tiles

    def cuts(rows: int, pairs: int, size: int, short: bool) -> tuple[object, object]:
        cut = cut_codes if coded else cut_tiles
        tiles = cut(rows, pairs, size, short) if dtype == torch.bfloat16 else None
        return cut_span(rows, pairs, size * dtype.itemsize, short), tiles

    found = {
        (bucket, width)
        for bucket, width in (*product(buckets, widths), *((one.pieces, one.grain) for one in ragged))
        for own in spec.groups
        for rows, pairs in [(width * own.heads // own.kv_heads, bucket * own.kv_heads)]
        if cuts(rows, pairs, own.head_dim, short=True) != cuts(rows, pairs, own.head_dim, short=False)
    }
    alike = [takes_row(own.heads // own.kv_heads, own.kv_heads, own.head_dim, short=True) for own in spec.groups]
    if dtype == torch.bfloat16 and any(alike):
        found.add((1, 1))
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """Sizes of the runner's buffers and the shapes it captures.

    `blocks` counts the blocks that requests may own; tensors hold one more, block 0, where pad rows write. `snapshots`
    counts the places for recurrent states, of a model that has them. `shorts` are the (bucket, width) that are captured
    for short contexts too. `mixed` is the pack that plain rows of all slots may be computed with.
    `synthetic_acceptance` holds the shares of rounds that accept at least 1, 2, ... drafts, whatever the drafts are. It
    is for measurements, and empty when tokens matter. `synthetic_siblings` are the chances of later children. `eager`
    runs every step without a graph. `threads` is the number of threads of torch on a CPU; 0 leaves it alone. `trees`
    are the numbers of nodes that rounds of trees may have, beside the chains of `widths`. With `coded` keys and values
    are codes of eight bits. With `near` layers with a window have so many blocks of their own. `ragged` are the rounds
    whose chains differ in their lengths.
    """

    slots: int
    blocks: int
    context_limit: int
    block_size: int = 16
    snapshots: int = 0
    widths: tuple[int, ...] = (1, 4, 8)
    buckets: tuple[int, ...] = (1, 2, 4, 8)
    shorts: frozenset[tuple[int, int]] = frozenset()
    packs: tuple[PackShape, ...] = (PackShape(1, 32), PackShape(1, 128), PackShape(4, 32))
    mixed: PackShape | None = None
    eos_ids: tuple[int, ...] = ()
    max_logprobs: int = 20
    threads: int = 1
    synthetic_acceptance: tuple[float, ...] = ()
    synthetic_siblings: tuple[float, ...] = ()
    eager: bool = False
    trees: tuple[int, ...] = ()
    coded: bool = False
    near: int = 0
    ragged: tuple[Ragged, ...] = ()

    def __post_init__(self) -> None:
        for name in ("widths", "buckets", "trees"):
            values: tuple[int, ...] = getattr(self, name)
            if (not values and name != "trees") or min(values, default=1) < 1 or list(values) != sorted(set(values)):
                raise ValueError(f"{name} must be positive, ascending and distinct, not {values}")
        if self.widths[0] != 1:
            raise ValueError("widths must contain 1: a plain round needs it")

    @property
    def max_blocks(self) -> int:
        """Blocks that one request can own: the columns of a block table."""
        return -(-self.context_limit // self.block_size)

    @property
    def widest(self) -> int:
        """Most rows of a sequence in a round."""
        return max((*self.widths, *self.trees))

    @property
    def every_width(self) -> tuple[Width, ...]:
        """Chains and trees that rounds may have, plain first."""
        return tuple(sorted((*self.widths, *map(Tree, self.trees), *self.ragged), key=order_of))

    @property
    def rounds(self) -> tuple[tuple[str, int, int], ...]:
        """All rounds that are captured: kind, bucket and rows of a sequence."""
        pairs = ((VERIFY, SHORT_VERIFY, self.widths), (TREES, SHORT_TREES, self.trees))
        return tuple(
            (kind, bucket, rows)
            for long, short, widths in pairs
            for kind in (long, short)
            for bucket, rows in product(self.buckets, widths)
            if kind == long or (bucket, rows) in self.shorts
        )

    @property
    def ragged_rounds(self) -> tuple[tuple[str, int, int], ...]:
        """All rounds of chains of any lengths that are captured: kind, pieces and rows of a piece."""
        pairs = [(width.pieces, width.grain) for width in self.ragged]
        return tuple((kind, *pair) for kind in (RAGGED, SHORT_RAGGED) for pair in pairs if self._captures(kind, pair))

    def _captures(self, kind: str, pair: tuple[int, int]) -> bool:
        return kind == RAGGED or pair in self.shorts

    @property
    def max_draft(self) -> int:
        """Longest draft K."""
        return self.widest - 1

    @property
    def pad_slot(self) -> int:
        """The slot that pad rows of a bucket point at."""
        return self.slots

    def bucket(self, rows: int) -> int:
        """The smallest bucket that holds `rows`."""
        return next(bucket for bucket in self.buckets if bucket >= rows)

    @property
    def every_pack(self) -> tuple[PackShape, ...]:
        """All packs that are captured."""
        return self.packs if self.mixed is None else (*self.packs, self.mixed)

    @property
    def segment(self) -> int:
        """Rows that the last tokens of a prompt may take in a pack of several, padding included."""
        return min((pack.width for pack in self.packs if pack.segments > 1), default=1)
