"""Sequences of random tokens over random K/V, on which the captured steps run as on requests; then all is as before.

Every sequence begins with the same blocks and ends with a few of its own, so that long ones fit beside one another.
Their slots stay inactive: a step computes and writes their rows, and commits none of them.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from services.common.device.staging import upload, write
from services.target.core.plan import Chunk
from services.target.device.context import Pool
from services.target.device.exact.prints import AT_ONCE, Prints
from services.target.device.exact.recurrent import RecurrentScratch
from services.target.device.exact.shape import Shape, verify
from services.target.device.packing import Pack, packed
from services.target.device.steps import Steps

_SEED = 2022
_CODES_DIMENSIONS = 6
"""Of paged codes; their exponents have one less."""


class Scratch:
    """A context in which slots 0 .. `seats` - 1 belong to the check; it must come before the first request.

    Prints are [.., 2]: of the scores of a row, and of all that it left in K/V. Of a recurrent model those of rounds
    count its rings too, and a plain round stands behind a chunk, which reads what that has folded.
    """

    def __init__(self, pool: Pool, steps: Steps) -> None:
        settings = pool.settings
        self._pool, self._steps, self._size = pool, steps, settings.block_size
        self._prints = Prints(pool.device)
        self._own = _blocks(settings.widest, self._size)
        self._recurrent = RecurrentScratch(pool.states)
        self._span = max(settings.widest, *(pack.rows for pack in settings.packs)) + self.in_order
        longest = _blocks(self._span, self._size)
        wanted = max(self._own * settings.slots, longest)
        self._private = min(wanted, settings.blocks // 2, *self._beside_windows())
        self._shared = min(settings.max_blocks, settings.blocks - self._private)
        self.seats = min(settings.slots, self._private // self._own)
        self.reach = min(settings.context_limit, self._shared * self._size)
        generator = torch.Generator().manual_seed(_SEED)
        drawn = torch.randint(0, pool.model.spec.vocab_size, (settings.slots + 1, self._span), generator=generator)
        self._tokens: list[list[int]] = drawn.tolist()
        self._lengths: tuple[int, ...] = ()

    def __enter__(self) -> Self:
        self._before = [tensor.clone() for tensor in self._small]
        generator = torch.Generator(self._pool.device).manual_seed(_SEED)
        for kv in self._caches:
            _draw(kv[:, :, self._blocks], generator)
        self._recurrent.draw(generator)
        self._pool.tag_S3.copy_(self._tags())
        self._place()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._steps.round.set_rows(())
        for width in self._pool.settings.ragged:
            self._steps.seat(width, ())
        for tensor, before in zip(self._small, self._before, strict=True):
            tensor.copy_(before)
        for kv in self._caches:
            kv[:, :, self._blocks].zero_()
        self._recurrent.forget()

    @property
    def in_order(self) -> bool:
        """Whether a row can be computed only behind those before it, hence a chunk by one slot."""
        return bool(self._recurrent)

    def seat(self, lengths: Sequence[int]) -> None:
        """Gives the first slots sequences of these lengths, each with blocks of its own for the rows behind."""
        self._lengths = tuple(lengths)
        for slot, length in enumerate(lengths):
            self._seat(slot, length, 1 + self._shared + slot * self._own, self._own)

    def verify(self, shape: Shape, slots: Sequence[int], offset: int = 0) -> Tensor:
        """Run a round of these slots from `offset` behind their lengths on; return prints [slots, span, 2]."""
        width = shape.span
        starts = [self._lengths[slot] + offset for slot in slots]
        tokens = [self._tokens[slot][offset : offset + width] for slot in slots]
        prints_BW2 = self._round(shape, slots, starts, tokens)
        if shape.nodes:
            prints_BW2 += self._unlike_twins(shape, slots, starts, tokens, prints_BW2)
        prints_BW2[..., 1] += self._recurrent.written(self._prints, *self._rows(slots, starts, width)).view(-1, width)
        return prints_BW2

    def _unlike_twins(
        self, shape: Shape, slots: Sequence[int], starts: Sequence[int], tokens: Sequence[Sequence[int]], chain: Tensor
    ) -> Tensor:
        """Return how many rows of a tree of twins are not as that depth of the chain [1]: none should be.

        Each depth has two nodes of one token, and those of the next follow the second of them.
        """
        depths = [(row + 1) // 2 for row in range(shape.span)]
        parents = [2 * (depth - 1) for depth in depths[1:]]
        told = [[row[depth] for depth in depths] for row in tokens]
        twins_BW2 = self._round(shape, slots, starts, told, parents)
        return (twins_BW2 != chain[:, depths]).sum().view(1)

    def prefill(self, pack: Shape, start: int) -> Tensor:
        """Fill a pack with a chunk, as far as blocks go; return prints [tokens, 2].

        Only the last token has scores, others 0. Rows that are computed in order have one segment, and one more token
        behind them has a round of its own.
        """
        count = self._seat_chunk(pack.width if self.in_order else pack.pack.tokens, start, self.in_order)
        steps, tokens = self._steps, tuple(self._tokens[0][:count])
        (chunk,) = packed([Chunk(slot=0, epoch=0, start=start, token_ids=tokens, last=True)], [pack.pack])
        steps.round.set_rows(())
        steps.run_prefill(chunk)
        steps.pack.set_first((0,))
        scores_1V = steps.run_first(1, "greedy").logits_BWV[0]
        prints_T2 = torch.zeros((count, 2), dtype=torch.int64, device=self._pool.device)
        prints_T2[:, 1] = self._written(*self._rows((0,), (start,), count))
        prints_T2[-1, 0] = self._prints.of(scores_1V)[0]
        if not self.in_order:
            return prints_T2
        next_112 = self._round(verify(1, 1), (0,), (start + count,), (self._tokens[0][count : count + 1],))
        return torch.cat((prints_T2, next_112[0]))

    def in_rounds(self, bucket: int, width: int, chunk: int, start: int) -> Tensor:
        """Compute the tokens of `prefill` by rounds in which each slot has the next rows; return prints [tokens, 2].

        Rows that are computed in order have one slot.
        """
        count = self._seat_chunk(chunk, start)
        slots = range(1 if self.in_order else min(bucket, self._pool.settings.slots))
        for slot in slots[1:]:
            self._pool.state.block_table_SN[slot].copy_(self._pool.state.block_table_SN[0])
        parts = []
        for first in range(0, count, len(slots) * width):
            offsets = [first + slot * width for slot in slots if first + slot * width < count]
            tokens = [(self._tokens[0] + [0] * width)[offset : offset + width] for offset in offsets]
            starts = [start + offset for offset in offsets]
            parts.append(self._round(verify(bucket, width), range(len(offsets)), starts, tokens).flatten(0, 1))
        return torch.cat(parts)[:count]

    def _round(
        self, shape: Shape, slots: Sequence[int], starts: Sequence[int], tokens: Sequence[Sequence[int]],
        parents: Sequence[int] = (),
    ) -> Tensor:  # fmt: skip
        """Run a round; where rows are nodes, of trees with these parents, else of chains."""
        pool, steps, width = self._pool, self._steps, shape.span
        for slot, start in zip(slots, starts, strict=True):
            self._recurrent.reach(slot, start)
        steps.round.set_rows(tuple(slots))
        where = upload(tuple(slots), torch.int64, pool.device)
        for column, values in (
            (pool.state.slots.length_S, starts),
            (pool.state.slots.anchor_S, [t[0] for t in tokens]),
        ):
            column.index_copy_(0, where, upload(values, column.dtype, pool.device))
        if width > 1:
            drafts = [token for row in tokens for token in row[1:]]
            drafts_BK = upload(drafts, pool.mailbox_SK.dtype, pool.device).view(len(slots), width - 1)
            pool.mailbox_SK[:, : width - 1].index_copy_(0, where, drafts_BK)
            if pool.parents_SK is not None:
                told = [*(parents or range(width - 1))] * len(slots)
                told_BK = upload(told, pool.parents_SK.dtype, pool.device).view(len(slots), width - 1)
                pool.parents_SK[:, : width - 1].index_copy_(0, where, told_BK)
        scores_BWV = self._scores(shape, slots)[: len(slots)]
        scores_T = self._prints.of(scores_BWV.flatten(0, 1))
        written_T = self._written(*self._rows(slots, starts, width))
        return torch.stack((scores_T, written_T), 1).view(len(slots), width, 2)

    def _scores(self, shape: Shape, slots: Sequence[int]) -> Tensor:
        """Run a round that is seated, or its rows beside an empty pack; return scores [sequences, span, V]."""
        if not shape.packs:
            table = self._steps.verify(shape.bucket, shape.width, "greedy", shape.kind).table
            if table is not None:
                table.set(slots, [shape.width] * len(slots))
            return self._steps.run_verify(shape.bucket, shape.width, "greedy", shape.kind).logits_BWV
        self._steps.run_prefill(Pack(shape.pack, []), len(slots))
        self._steps.pack.set_first(slots)
        return self._steps.run_first(shape.beside, "greedy").logits_BWV

    def _rows(self, slots: Sequence[int], starts: Sequence[int], width: int) -> tuple[Tensor, Tensor]:
        """Return the slots and positions [T] of `width` rows from each start on."""
        seats = [slot for slot in slots for _ in range(width)]
        positions = [start + row for start in starts for row in range(width)]
        device = self._pool.device
        return upload(seats, torch.int64, device), upload(positions, torch.int64, device)

    def _written(self, slots_T: Tensor, positions_T: Tensor) -> Tensor:
        """Return the prints [T] of what is cached of positions, in every layer, the draft context's too."""
        table_SN, places_N = self._pool.state.block_table_SN, self._pool.states.places_N
        blocks_T, at_T = table_SN[slots_T, positions_T // self._size].long(), positions_T % self._size
        near_T = blocks_T if places_N is None else places_N[blocks_T]
        prints_T = torch.zeros_like(blocks_T)
        for kv in self._caches:
            near = places_N is not None and kv.shape[2] < len(places_N)
            prints_T += self._cached(kv, (near_T if near else blocks_T) * self._size + at_T)
        return prints_T

    def _cached(self, kv_L2NSX: Tensor, places_T: Tensor) -> Tensor:
        """Some rows at a time: all layers of a row are one row of numbers."""
        flat_L2PX = kv_L2NSX.flatten(2, 3)
        at_once = max(1, AT_ONCE * flat_L2PX.shape[2] // flat_L2PX.numel())
        rows = (flat_L2PX[:, :, some].movedim(2, 0).flatten(1) for some in places_T.split(at_once))
        return torch.cat([self._prints.of(some) for some in rows])

    def _beside_windows(self) -> list[int]:
        """Return how many blocks may have a place of their own, beside a window, where layers with one have fewer."""
        settings = self._pool.settings
        window = max(own.window for own in self._pool.model.spec.groups)
        return [settings.near - -(-window // self._size) - 1] if settings.near else []

    def _place(self) -> None:
        """Give blocks places in layers with a window: own ones their own, shared ones those left, over and over.

        So a sequence's window has one place for each block, at whatever length, and the same one whoever asks.
        """
        places_N = self._pool.states.places_N
        if places_N is None:
            return
        rest = min(self._shared, self._pool.settings.near - self._private)
        shared, own = [index % rest + 1 for index in range(self._shared)], range(rest + 1, rest + 1 + self._private)
        places = [0, *shared, *own]
        write(places_N, places + [0] * (len(places_N) - len(places)))

    def _seat_chunk(self, chunk: int, start: int, behind: int = 0) -> int:
        """Give slot 0 a sequence with blocks for a chunk; return how many tokens they hold, `behind` left free."""
        room = self._private * self._size - start % self._size
        self._seat(0, start, 1 + self._shared, self._private)
        return min(chunk, min(room, self.reach - self._pool.settings.widest - start) - behind)

    def _seat(self, slot: int, length: int, first: int, count: int) -> None:
        """Write a table: shared blocks below the length, then `count` from `first` on, none beyond."""
        table_N = self._pool.state.block_table_SN[slot]
        full = length // self._size
        table = [*range(1, 1 + full), *range(first, first + count)][: len(table_N)]
        write(table_N, table + [0] * (len(table_N) - len(table)))
        self._recurrent.seat(slot, length)

    def _tags(self) -> Tensor:
        """Return tags for which every slot's mailbox is taken: the round and generation that are expected now."""
        number, generation = self._steps.round.expected_2
        epochs_S = self._pool.state.epoch_S
        return torch.stack((number.expand_as(epochs_S), epochs_S, generation.expand_as(epochs_S)), 1)

    @property
    def _blocks(self) -> slice:
        return slice(1, 1 + self._shared + self._private)

    @property
    def _caches(self) -> list[Tensor]:
        """Paged K/V [L, 2, N, S, H, D] of groups of attention, exponents of codes, and the draft context's if any."""
        return [*self._pool.states.paged, *([self._pool.draft_kv] if self._pool.draft_kv.numel() else [])]

    @property
    def _small(self) -> list[Tensor]:
        """What the check overwrites beside K/V."""
        pool, slots, mapped = self._pool, self._pool.state.slots, self._pool.mapped
        mine = [slots.length_S, slots.anchor_S, pool.state.block_table_SN, pool.mailbox_SK, pool.tag_S3]
        if pool.parents_SK is not None:
            mine.append(pool.parents_SK)
        if pool.states.places_N is not None:
            mine.append(pool.states.places_N)
        published = [mapped.rows_B, mapped.length_S, mapped.anchor_S, mapped.history_length_S]
        return [*mine, *published, *self._steps.pack.tensors, *self._recurrent.small]


def _draw(kv: Tensor, generator: torch.Generator) -> None:
    """Fill K/V with random numbers, or codes and exponents with some that mean numbers of such a size."""
    if kv.is_floating_point():
        kv.normal_(generator=generator)
    elif kv.ndim == _CODES_DIMENSIONS:
        kv.random_(-127, 128, generator=generator)
    else:
        kv.random_(-7, 0, generator=generator)


def _blocks(rows: int, size: int) -> int:
    """Return how many blocks so many rows may touch, wherever they begin."""
    return (rows - 1 + size - 1) // size + 1
