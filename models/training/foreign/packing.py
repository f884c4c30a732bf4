"""Conversations packed into rows of one length, and the blocks that a step draws from them."""

from bisect import bisect_left, insort
from dataclasses import dataclass

import torch
from torch import Tensor

from models.training.foreign.corpus import Conversations


@dataclass(frozen=True)
class Packed:
    """Rows [rows, length] of whole conversations: tokens, their positions, and whose they are.

    `answers` marks tokens that a block can start at, `greedy` those of greedy texts. Conversation 0 is padding.
    """

    ids: Tensor
    positions: Tensor
    owners: Tensor
    answers: Tensor
    greedy: Tensor

    def rows(self, which: Tensor) -> "Packed":
        """Return some rows."""
        return Packed(*(part[which] for part in vars(self).values()))

    @classmethod
    def single(cls, ids: Tensor) -> "Packed":
        """Return a row of one text [tokens]."""
        places = torch.arange(len(ids), device=ids.device)[None]
        ones = torch.ones_like(places, dtype=torch.short)
        return cls(ids[None], places, ones, ones > 0, ones > 0)


def pack(texts: Conversations) -> Packed:
    """Put conversations into as few rows as a best fit of the longest first finds; what takes no block is left out.

    Raises:
        ValueError: there is no conversation.
    """
    if not len(texts.ids):
        raise ValueError("no conversation was written: give the target more seconds (--data-seconds)")
    length, device = texts.ids.shape[1], texts.ids.device
    ends = texts.ends.tolist()
    places = _best_fit(ends, length)
    rows, offsets, owners = (torch.tensor(part, device=device) for part in zip(*places, strict=True))
    count = int(rows.max()) + 1
    text = torch.repeat_interleave(torch.arange(len(ends), device=device), texts.ends)
    position = torch.arange(len(text), device=device) - (texts.ends.cumsum(0) - texts.ends)[text]
    at = rows[text] * length + offsets[text] + position

    def spread(values: Tensor) -> Tensor:
        flat = torch.zeros(count * length, dtype=values.dtype, device=device)
        flat[at] = values
        return flat.view(count, length)

    answers = (position >= texts.starts[text]) & (position + 1 < texts.ends[text])
    return Packed(
        ids=spread(texts.ids[text, position]),
        positions=spread(position.short()),
        owners=spread(owners[text].short()),
        answers=spread(answers),
        greedy=spread(texts.greedy[text]),
    )


def _best_fit(sizes: list[int], length: int) -> list[tuple[int, int, int]]:
    """Return for every size its row, where it begins there, and its number in the row, from 1."""
    places = [(0, 0, 0)] * len(sizes)
    rooms: list[tuple[int, int, int]] = []
    count = 0
    for index in sorted(range(len(sizes)), key=lambda at: -sizes[at]):
        size = sizes[index]
        found = bisect_left(rooms, (size, -1, -1))
        if found < len(rooms):
            room, row, number = rooms.pop(found)
        else:
            room, row, number, count = length, count, 1, count + 1
        places[index] = (row, length - room, number)
        if room > size:
            insort(rooms, (room - size, row, number + 1))
    return places


@dataclass(frozen=True)
class Pattern:
    """Blocks that a row of the batch gives: how many of which size, anchors included.

    A drafter that has seen short blocks drafts as well when it is asked for few tokens.
    """

    counts: tuple[tuple[int, int], ...] = ((16, 8), (8, 44), (4, 16))

    @property
    def blocks(self) -> int:
        """Blocks a row."""
        return sum(count for _, count in self.counts)

    def numbers(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the block and the place in it of every drafted row."""
        sizes = [size for size, count in self.counts for _ in range(count)]
        block = torch.tensor([index for index, size in enumerate(sizes) for _ in range(size)], device=device)
        return block, torch.tensor([place for size in sizes for place in range(size)], device=device)


@dataclass(frozen=True)
class Blocks:
    """Where blocks stand in a batch: for each of their rows [batch, drafted] the place in its packed row and position.

    `bias` [batch, 1, drafted, length + drafted] hides what a block must not see. `asked` marks rows that have a label.
    """

    places: Tensor
    positions: Tensor
    bias: Tensor
    asked: Tensor
    offsets: Tensor


def draw_blocks(batch: Packed, pattern: Pattern, generator: torch.Generator, dtype: torch.dtype) -> Blocks:
    """Put anchors at random tokens of answers; blocks beyond the answers of a row ask for nothing."""
    device, length = batch.ids.device, batch.ids.shape[1]
    draw = torch.rand(batch.ids.shape, generator=generator, device=device).masked_fill(~batch.answers, -1.0)
    draw, anchors = draw.topk(min(pattern.blocks, length), dim=1)
    # Not by order of the draw, in which shortage would hit the last sizes.
    mixed = torch.rand(anchors.shape, generator=generator, device=device).argsort(1)
    draw, anchors = draw.gather(1, mixed), anchors.gather(1, mixed)
    block, offset = pattern.numbers(device)
    anchor = anchors[:, block]
    places = (anchor + offset).clamp(max=length - 1)
    own = batch.owners.gather(1, anchor)
    alike = (batch.owners.gather(1, places) == own) & (anchor + offset < length)
    asked = alike & (offset > 0) & (draw[:, block] >= 0)
    before = torch.arange(length, device=device) < anchor[:, :, None]
    seen = before & (batch.owners[:, None] == own[:, :, None])
    within = (block[:, None] == block).expand(len(anchors), -1, -1)
    bias = torch.zeros((), dtype=dtype, device=device).masked_fill(~torch.cat((seen, within), dim=2), -torch.inf)
    positions = batch.positions.gather(1, anchor) + offset
    return Blocks(places, positions, bias[:, None], asked, offset)


def causal_bias(batch: Packed, dtype: torch.dtype) -> Tensor:
    """Return the bias [batch, 1, length, length] under which each token sees its own conversation up to itself."""
    length, device = batch.ids.shape[1], batch.ids.device
    places = torch.arange(length, device=device)
    seen = (batch.owners[:, :, None] == batch.owners[:, None]) & (places <= places[:, None])
    return torch.zeros((), dtype=dtype, device=device).masked_fill(~seen, -torch.inf)[:, None]
