"""Which sequence each row of a round belongs to, where sequences have chains of different lengths."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.device.staging import write


@dataclass(frozen=True, slots=True)
class RowTable:
    """The rows of a round in static memory that the host writes, so that a captured step reads where they belong.

    Suffixes: P pieces of G rows, T = P G, B sequences of up to W rows. A piece has consecutive rows of one sequence.
    `seats_P` are slots, `lines_P` the numbers of the sequences, `offsets_P` the places of pieces among the rows of
    their sequence. Sequence b has the rows from `firsts_B` on, `takes_B` of them, whole pieces all; 0 where there is no
    such sequence. What is left are pieces of the pad slot. All are int32 and views of `packed_N`.
    """

    grain: int
    pad_slot: int
    packed_N: Tensor
    seats_P: Tensor
    lines_P: Tensor
    offsets_P: Tensor
    firsts_B: Tensor
    takes_B: Tensor

    @classmethod
    def allocate(
        cls, pieces: int, grain: int, sequences: int, pad_slot: int, device: torch.device | str = "cpu"
    ) -> "RowTable":
        """Return a table without sequences."""
        packed_N = torch.empty(3 * pieces + 2 * sequences, dtype=torch.int32, device=device)
        table = cls(grain, pad_slot, packed_N, *packed_N.split([pieces] * 3 + [sequences] * 2))
        table.set((), ())
        return table

    def set(self, slots: Sequence[int], takes: Sequence[int]) -> None:
        """Give these slots so many rows each, behind one another, in one copy.

        Raises:
            ValueError: they are no whole pieces, or more than there are.
        """
        pieces, sequences, grain = len(self.seats_P), len(self.takes_B), self.grain
        if any(take < grain or take % grain for take in takes) or sum(takes) > pieces * grain:
            raise ValueError(f"rows {tuple(takes)} are not whole pieces of {grain}, {pieces} at most")
        seats: list[int] = []
        lines: list[int] = []
        offsets: list[int] = []
        firsts: list[int] = []
        for line, (slot, take) in enumerate(zip(slots, takes, strict=True)):
            firsts.append(len(seats) * grain)
            seats += [slot] * (take // grain)
            lines += [line] * (take // grain)
            offsets += range(0, take, grain)
        pads, none = [0] * (pieces - len(seats)), [0] * (sequences - len(firsts))
        seats += [self.pad_slot] * len(pads)
        write(self.packed_N, [*seats, *lines, *pads, *offsets, *pads, *firsts, *none, *takes, *none])

    def rows_of(self, width: int) -> Tensor:
        """Return the row of each place [B, W]; places behind a sequence's rows read its last one again."""
        place_W = torch.arange(width, device=self.takes_B.device)
        last_B1 = (self.takes_B - 1).clamp_min(0)[:, None]
        return self.firsts_B[:, None].long() + torch.minimum(place_W, last_B1)

    @property
    def places_PG(self) -> Tensor:
        """The places of rows among those of their sequence."""
        return self.offsets_P[:, None].long() + torch.arange(self.grain, device=self.offsets_P.device)
