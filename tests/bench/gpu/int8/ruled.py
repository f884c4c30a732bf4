"""python -m tests.bench.gpu.int8.ruled: other cuts of a drafter's products in eight bits than the rule's, on one GPU.

For weights that no table has. Bits first, against the rule's cut: sums of whole numbers are exact. Then microseconds
under load with the rounding of the rows, a line for each product and number of rows. With --save the quickest go to a
file of a table's entries, where they gain enough.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from services.common.kernels.linear import int8_kernel
from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.int8_weight import quantised
from services.common.kernels.linear.persistent.eight import eight_cut
from services.common.kernels.linear.persistent.rule import fits, seconds, shortlist
from services.common.kernels.linear.persistent.tiling import HEAD_LINES, PersistentTiling
from services.common.kernels.normed import Normed
from services.common.kernels.tables import Entry, Table, text_of
from tests.bench.gpu.int8.eight import fitted
from tests.bench.gpu.products.clock import GpuClock
from tests.bench.gpu.products.ruled import DEVICE, EPS, PRODUCTS, compile_all, table_sizes, told

LEAST_GAIN, _VOCAB = 0.02, 151_936
_MOST_ADDED, _COPIES_BYTES, _LOOP_S, _LOOPS = 256, 160 << 20, 0.03, 2
_TILES = ((128, 128), (128, 192), (128, 256), (256, 96), (256, 128), (256, 192), (192, 128), (192, 192))
"""Rows and lines of a tile. They have whole waves of 4,096, 6,144 and 24,576 lines, with clusters or without."""
Weight = tuple[int, int, Kind]


def products(hidden: int, rows: int) -> dict[str, Weight]:
    """Return outputs, depth and what follows each product: of many rows a sum is a launch of its own."""
    found = {
        name: (lines, depth, Kind.PLAIN if kind == Kind.ADDED and rows > _MOST_ADDED else kind)
        for name, (lines, depth, kind) in PRODUCTS[hidden].items()
    }
    return found | {"head": (_VOCAB, hidden, Kind.PLAIN)}


def candidates(weight: Weight, rows: int, most: int) -> list[PersistentTiling]:
    """Return what serves, then what the rule finds near, then twice as many tiles of whole waves."""
    lines, depth, kind = weight
    serves, halves = eight_cut(lines, depth, rows, kind), 1 + (kind == Kind.GATED)
    assert serves is not None, "the rule cuts all of them"
    waves = [
        fitted(kind, tall, band // halves, 1, share, across)
        for tall, band in _TILES
        for share, across in ((1, 1), (2, 1), (1, 2))
        if tall * share <= rows
    ]
    legal = [cut for cut in waves if fits(cut, lines, depth)]
    least = min((seconds(cut, lines, depth, rows) for cut in legal), default=1.0)
    legal.sort(key=lambda cut: (round(15 * seconds(cut, lines, depth, rows) / least), _taken_in(cut)))
    near = shortlist(lines, depth, rows, kind, 1 + most, wide=False)
    return list(dict.fromkeys([serves, *near, *legal[: 2 * most]]))


def _taken_in(cut: PersistentTiling) -> float:
    """Return what a tile loads for each of its results."""
    return (cut.rows / cut.across + cut.lines / cut.share) / (cut.rows * cut.lines)


class Bench:
    """A product by a number of rows, with more copies of its weight than the second cache holds."""

    def __init__(self, weight: Weight, rows: int) -> None:
        self.lines, self.depth, self.kind = weight
        self.rows = rows
        copies = max(2, math.ceil(_COPIES_BYTES / (self.lines * self.depth)))
        self.weights = [quantised(_random(self.lines, self.depth)) for _ in range(copies)]
        self.x_TD, self.stream_TF, self.norm_F = (
            _random(rows, self.depth), _random(rows, self.lines), _random(self.lines)
        )  # fmt: skip
        self.squares_T = torch.randint(1 << 33, 1 << 35, (rows,), device=DEVICE)
        self.sums_T = torch.zeros(rows, dtype=torch.int64, device=DEVICE)

    def run(self, number: int, cut: PersistentTiling) -> Tensor:
        """Return the result of one product."""
        weight = self.weights[number % len(self.weights)]
        if self.kind == Kind.GATED:
            return int8_kernel.linear_gated(Normed(self.x_TD, self.squares_T), weight, EPS, cut)
        if self.kind == Kind.ADDED:
            given = (self.x_TD, weight, self.stream_TF, self.norm_F, EPS, 0.0, self.sums_T, cut)
            return int8_kernel.linear_added(*given)[1]
        return int8_kernel.linear(self.x_TD, weight, None, cut)

    def micros(self, cut: PersistentTiling, clock: GpuClock) -> float:
        """Return what a product takes under load."""
        count = 2 * len(self.weights)

        def step() -> None:
            for number in range(count):
                self.run(number, cut)

        replay = clock.captured(step)
        return min(clock.hot(replay, _LOOP_S) for _ in range(_LOOPS)) / count


def _random(*sizes: int) -> Tensor:
    return torch.randn(*sizes, device=DEVICE).mul_(0.05).to(torch.bfloat16)


def entry_of(bench: Bench, cut: PersistentTiling) -> Entry:
    """Return the entry of a table that lets a cut serve; heads of any size have that of the least."""
    kind, lines = bench.kind.name.lower(), HEAD_LINES if bench.lines == _VOCAB else bench.lines
    return Entry("tiles", lines, bench.depth, kind, "int8", bench.rows, table_sizes(cut))


def main(given: Sequence[str] | None = None) -> int:
    """Returns 1 where a cut has other bits than the rule's."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.int8.ruled", description=__doc__)
    parser.add_argument("--hidden", type=int, nargs="*", default=[4096])
    parser.add_argument("--products", nargs="*", help="some of them alone")
    parser.add_argument("--rows", type=int, nargs="*", default=[2048, 512, 1024, 256])
    parser.add_argument("--most", type=int, default=3, help="cuts that the rule finds near")
    parser.add_argument("--seconds", type=float, default=60.0, help="no product is begun later")
    parser.add_argument("--save", type=Path, help="file of the entries")
    chosen = parser.parse_args(given)
    start = time.monotonic()
    todo = [
        (name, weight, rows, candidates(weight, rows, chosen.most))
        for rows in chosen.rows for hidden in chosen.hidden for name, weight in products(hidden, rows).items()
        if not chosen.products or name in chosen.products
    ]  # fmt: skip
    compile_all(list(dict.fromkeys(cut for *_, cuts in todo for cut in cuts)))
    print(f"{time.monotonic() - start:.0f} s to compile. us; rows x lines, CTAs that share lines : that share rows")
    entries, wrong = list[Entry](), 0
    with torch.inference_mode():
        clock = GpuClock()
        for name, weight, rows, cuts in todo:
            if time.monotonic() - start > chosen.seconds:
                print(f"no time for {name} x {rows}")
                continue
            bench = Bench(weight, rows)
            expected = bench.run(0, cuts[0]).clone()
            differ = [cut for cut in cuts if not torch.equal(bench.run(0, cut), expected)]
            wrong += len(differ)
            times = {cut: bench.micros(cut, clock) for cut in cuts if cut not in differ}
            best = min(times, key=times.__getitem__)
            gain = 1 - times[best] / times[cuts[0]]
            entries += [entry_of(bench, best)] if gain >= LEAST_GAIN else []
            rest = ", ".join(f"{told(cut)} {us:.1f}" for cut, us in sorted(times.items(), key=lambda item: item[1])[:6])
            print(f"{name:<8}{rows:>5}  serves {told(cuts[0])} {times[cuts[0]]:.1f} | {rest} | {gain:.3f}", flush=True)
            print(*(f"        OTHER BITS: {cut}" for cut in differ), sep="\n", end="\n" * bool(differ))
    text = text_of(Table(torch.cuda.get_device_name(), tuple(entries))) if entries else "no entry gains enough\n"
    if chosen.save:
        chosen.save.write_text(text)
    print(text, f"{time.monotonic() - start:.0f} s, {wrong} cuts with other bits", sep="")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
