"""Attention of a row alone against the same row in any batch, width, chunk and blocks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.kernels.span_attention import attend_block, attend_span, plan_context, plan_span
from tests.bench.gpu.exact.row_kernels import BLOCK_SIZE, Numbers
from tests.bench.gpu.exact.rows_alone import Tally
from tests.support.tiny_checkpoints import TinyShape

EDGES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
BATCHES = (1, 2, 3, 5, 8, 16, 17, 31, 32, 64, 128)
WIDTHS = (1, 2, 4, 5, 8, 16)
CHUNKS = ((0, 2048), (0, 256), (256, 256), (700, 512), (63, 32), (1000, 128), (4000, 2048), (1, 512))
"""Starts and lengths of pieces of one prompt."""
_SEED = 5


@dataclass(frozen=True)
class Sizes:
    """How much is compared; `longest` is one sequence's length, `widest` the rows behind every sequence."""

    lengths: tuple[int, ...]
    batches: tuple[int, ...] = BATCHES
    widths: tuple[int, ...] = WIDTHS
    chunks: tuple[tuple[int, int], ...] = CHUNKS

    @property
    def widest(self) -> int:
        """Rows behind every sequence."""
        return self.widths[-1]

    @property
    def prompt(self) -> int:
        """Tokens of the prompt that is cut."""
        return max(start + width for start, width in self.chunks)


def full_sizes(count: int, longest: int) -> Sizes:
    """As many lengths: those around what may be an edge of tiles or splits, a long one, and random ones."""
    dice = random.Random(_SEED)
    edges = [edge + by for edge in EDGES for by in (-17, -16, -1, 0, 1) if edge + by < longest]
    lengths = [0, 1, 15, 16, longest, *edges]
    return Sizes((*lengths, *(dice.randrange(2, 1500) for _ in range(count - len(lengths)))))


class Paged:
    """Sequences with random keys, values and queries, in blocks that no two share; block 0 is nobody's."""

    def __init__(self, shape: TinyShape, numbers: Numbers, lengths: Sequence[int], widest: int) -> None:
        """`widest` rows of each come behind its length."""
        self.lengths, self.device, self._dice = list(lengths), numbers.device, random.Random(_SEED)
        self.q = numbers.rows(len(lengths), widest, shape.heads, shape.head_dim)
        self.own = numbers.rows(2, len(lengths), widest, shape.kv_heads, shape.head_dim)
        needed = [-(-(length + widest) // BLOCK_SIZE) for length in lengths]
        self.table = torch.zeros(len(lengths), max(needed), dtype=torch.int32)
        free = torch.randperm(sum(needed), generator=torch.Generator().manual_seed(_SEED)) + 1
        for row, blocks in enumerate(free.split(needed)):
            self.table[row, : len(blocks)] = blocks
        self.kv = numbers.rows(2, 1 + len(free), BLOCK_SIZE, shape.kv_heads, shape.head_dim)

    def elsewhere(self) -> Paged:
        """The same sequences in other blocks."""
        order = torch.randperm(self.kv.shape[1] - 1, generator=torch.Generator().manual_seed(_SEED + 1)) + 1
        places = torch.cat((torch.zeros(1, dtype=torch.int64), order))
        other = object.__new__(Paged)
        other.__dict__.update(self.__dict__)
        other.kv = torch.empty_like(self.kv)
        other.kv[:, places.to(self.device)] = self.kv
        other.table = places.to(torch.int32)[self.table.long()]
        return other

    def spoilt(self, kept: Sequence[int]) -> Paged:
        """All numbers of other sequences than the kept ones are NaN."""
        other = object.__new__(Paged)
        other.__dict__.update(self.__dict__)
        lost = [row for row in range(len(self.lengths)) if row not in set(kept)]
        other.kv, other.q, other.own = self.kv.clone(), self.q.clone(), self.own.clone()
        blocks = self.table[lost].flatten().unique().long()
        other.kv[:, blocks[blocks > 0].to(self.device)] = torch.nan
        other.q[lost], other.own[:, lost] = torch.nan, torch.nan
        return other

    def causal(self, rows: Sequence[int], first: int, width: int) -> Tensor:
        """Rows `first ..` behind each sequence, [B, W, H * D]."""
        lengths_B = torch.tensor([self.lengths[row] + first for row in rows], device=self.device)
        span = plan_span(self.table[list(rows)].to(self.device), lengths_B, width, BLOCK_SIZE)
        return attend_span(self.q[list(rows), first : first + width].contiguous(), self.kv, span)

    def block(self, rows: Sequence[int], width: int) -> Tensor:
        """A drafter's block behind each sequence."""
        lengths_B = torch.tensor([self.lengths[row] for row in rows], device=self.device)
        span = plan_context(self.table[list(rows)].to(self.device), lengths_B, width, BLOCK_SIZE)
        keys, values = self.own[:, list(rows), :width].contiguous()
        return attend_block(self.q[list(rows), :width].contiguous(), keys, values, self.kv, span)


def attention_tallies(shape: TinyShape, numbers: Numbers, sizes: Sizes) -> Iterator[Tally]:
    """Verify rows, chunks of a prompt, and a drafter's blocks."""
    paged = Paged(shape, numbers, sizes.lengths, sizes.widest)
    yield _spans(paged, sizes)
    yield _blocks(paged, sizes)
    yield _chunks(shape, numbers, sizes)


def _spans(paged: Paged, sizes: Sizes) -> Tally:
    tally, every = Tally("attend_span: widths, batches, blocks"), range(len(sizes.lengths))
    alone = torch.stack([
        torch.cat([paged.causal([row], place, 1)[0] for place in range(sizes.widest)]) for row in every
    ])  # fmt: skip
    for where, there in (("", paged), ("other blocks, ", paged.elsewhere())):
        for rows, width, first in _groups(sizes):
            got = there.causal(rows, first, width)
            case = f"{where}batch {len(rows)}, width {width}, from row {first}"
            tally.add(case, got.flatten(0, 1), alone[rows, first : first + width].flatten(0, 1))
    _beside_nan(paged, sizes, tally, lambda there, rows: there.causal(rows, 0, sizes.widest), alone)
    return tally


def _blocks(paged: Paged, sizes: Sizes) -> Tally:
    tally, every = Tally("attend_block: batches, blocks"), range(len(sizes.lengths))
    for width in sizes.widths[1:]:
        alone = torch.cat([paged.block([row], width) for row in every])
        for where, there in (("", paged), ("other blocks, ", paged.elsewhere())):
            for rows, _, _ in _groups(sizes, widths=(width,)):
                tally.add(f"{where}batch {len(rows)}, width {width}", there.block(rows, width), alone[rows])
    _beside_nan(paged, sizes, tally, lambda there, rows: there.block(rows, sizes.widest), alone)
    return tally


def _beside_nan(
    paged: Paged, sizes: Sizes, tally: Tally, attend: Callable[[Paged, list[int]], Tensor], alone: Tensor
) -> None:
    """Sequences between others that are NaN."""
    for batch in sizes.batches[1:]:
        rows = random.Random(batch).sample(range(len(sizes.lengths)), batch)
        got = attend(paged.spoilt(rows[::2]), rows)[::2]
        tally.add(f"batch {batch}, NaN beside", got, alone[rows[::2]])


def _chunks(shape: TinyShape, numbers: Numbers, sizes: Sizes) -> Tally:
    """One prompt, whose rows are alone, and then in chunks, the last of them padded."""
    tally, count = Tally("attend_span: chunks"), sizes.prompt
    prompt = Paged(shape, numbers, [0], count)
    places = sorted({*range(0, count, 37), *(edge + by for edge in EDGES for by in (-1, 0, 1) if edge + by < count)})
    alone = {place: prompt.causal([0], place, 1)[0, 0] for place in places}
    for start, width in sizes.chunks:
        for valid in (width, width - width // 5):
            lengths_B = torch.tensor([start], device=prompt.device)
            valid_B = torch.tensor([valid], device=prompt.device)
            span = plan_span(prompt.table.to(prompt.device), lengths_B, width, BLOCK_SIZE, valid_B)
            got = attend_span(prompt.q[:, start : start + width].contiguous(), prompt.kv, span)[0]
            seen = [place for place in places if start <= place < start + valid]
            if seen:
                expected = torch.stack([alone[place] for place in seen])
                tally.add(f"chunk {start}+{valid} of {width}", got[[place - start for place in seen]], expected)
    return tally


def _groups(sizes: Sizes, widths: Sequence[int] = ()) -> Iterator[tuple[list[int], int, int]]:
    """Random sequences of each batch, with each width from a random first row."""
    dice = random.Random(_SEED)
    for batch in sizes.batches:
        for width in widths or sizes.widths:
            yield dice.sample(range(len(sizes.lengths)), batch), width, dice.randrange(sizes.widest - width + 1)
