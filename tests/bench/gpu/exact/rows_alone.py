"""Whether what is computed for a row has the same bits whatever rows are beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Inputs = tuple[Tensor, ...]
Outputs = dict[str, Tensor]
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Subject:
    """Something computed for rows: inputs [T, ...] that may be overwritten, and named outputs [T, ...]."""

    name: str
    inputs: Inputs
    compute: Callable[[Inputs], Outputs]


@dataclass
class Tally:
    """Rows compared with what they are alone, those that differ, and the first case in which one did."""

    what: str
    compared: int = 0
    differ: int = 0
    cases: int = 0
    first: str = ""

    def add(self, case: str, got: Tensor, expected: Tensor) -> None:
        """Compares rows [T, ...] bit by bit; the sign of a zero counts."""
        wrong = int((bits(got) != bits(expected)).flatten(1).any(1).sum()) if len(got) else 0
        self.compared, self.differ, self.cases = self.compared + len(got), self.differ + wrong, self.cases + 1
        self.first = self.first or (case if wrong else "")


def bits(rows: Tensor) -> Tensor:
    """The numbers' bits as integers [T, N]."""
    flat = rows.reshape(len(rows), -1).contiguous()
    return flat.view(torch.uint8 if flat.dtype == torch.bool else _BITS[flat.dtype.itemsize])


def compare(subject: Subject, counts: Sequence[int], seed: int) -> list[Tally]:
    """Runs a subject on all of its rows, then on parts of them, by `parts`; one tally for each output.

    A part whose every second row is NaN is compared in the others.
    """
    whole = {name: out.clone() for name, out in subject.compute(_taken(subject.inputs, None)).items()}
    tallies = {name: Tally(f"{subject.name}: {name}" if len(whole) > 1 else subject.name) for name in whole}
    spoils = any(one.is_floating_point() for one in subject.inputs)
    for case, places_R in parts(subject.inputs[0], counts, seed):
        found = subject.compute(_taken(subject.inputs, places_R))
        for name, out in found.items():
            tallies[name].add(case, out, whole[name][places_R])
        if spoils and len(places_R) > 1:
            found = subject.compute(_spoilt(_taken(subject.inputs, places_R)))
            for name, out in found.items():
                tallies[name].add(f"{case}, NaN beside", out[1::2], whole[name][places_R[1::2]])
    return list(tallies.values())


def parts(rows_TX: Tensor, counts: Sequence[int], seed: int) -> Iterator[tuple[str, Tensor]]:
    """Places of rows, for each count up to all of them: the first ones, and as many in a random order."""
    rows, dice = len(rows_TX), torch.Generator().manual_seed(seed)
    for count in (count for count in counts if count <= rows):
        yield f"first {count}", torch.arange(count, device=rows_TX.device)
        yield f"random {count}", torch.randperm(rows, generator=dice)[:count].to(rows_TX.device)


def _taken(inputs: Inputs, places_R: Tensor | None) -> Inputs:
    return tuple(one.clone() if places_R is None else one.index_select(0, places_R) for one in inputs)


def _spoilt(inputs: Inputs) -> Inputs:
    for one in inputs:
        if one.is_floating_point():
            one[::2] = torch.nan
    return inputs
