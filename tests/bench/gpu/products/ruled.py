"""python -m tests.bench.gpu.products.ruled: the rule's cuts beside the library, for weights that no table has.

Bits first: what differs from the library's is named and not timed. Then microseconds under load, a line a product. The
quickest of each are saved as entries of a table; where the library was quicker the cut is null.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor

from services.common.kernels.cuda_program import _compiled
from services.common.kernels.linear import kernel
from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.cuda_products import cuda_added, cuda_normed
from services.common.kernels.linear.persistent.launch import source_of
from services.common.kernels.linear.persistent.rule import ruled_cut, seconds, shortlist
from services.common.kernels.linear.persistent.tiling import PersistentTiling
from services.common.kernels.normed import Normed
from services.common.kernels.tables import Entry, Table, text_of
from tests.bench.gpu.products.clock import GpuClock

PRODUCTS = {
    4096: {
        "qkv": (6144, 4096, Kind.PLAIN), "o": (4096, 4096, Kind.ADDED), "gate_up": (24_576, 4096, Kind.GATED),
        "down": (4096, 12_288, Kind.ADDED),
    },
    5120: {
        "qkv": (7168, 5120, Kind.PLAIN), "o": (5120, 5120, Kind.ADDED), "gate_up": (34_816, 5120, Kind.GATED),
        "down": (5120, 17_408, Kind.ADDED),
    },
}  # fmt: skip
"""Those of Qwen3-8B and of Qwen3-14B."""
ROWS = (128, 256, 96, 512, 192)
DEVICE = "cuda"
EPS, _CYCLED_BYTES, _CAPTURED_US, _LOOP_S, _LOOPS = 1e-6, 200 << 20, 800.0, 0.012, 3
_DEFAULTS = PersistentTiling(0, 0, 0, 0)._asdict()
Outcome = tuple[Tensor, ...]
Run = Callable[[Tensor], Outcome]


class Bench:
    """A product by a number of rows, with as many copies of its weight as the second cache cannot hold."""

    def __init__(self, weight: tuple[int, int, Kind], rows: int) -> None:
        self.lines, self.depth, self.kind = weight
        self.rows = rows
        outputs = self.lines // (2 if self.kind == Kind.GATED else 1)
        copies = max(2, math.ceil(_CYCLED_BYTES / (2 * self.lines * self.depth)))
        self.weights = [_random(self.lines, self.depth, scale=0.02) for _ in range(copies)]
        self.x, self.stream, self.norm = _random(rows, self.depth), _random(rows, outputs), _random(outputs)
        self.squares = torch.randint(1 << 33, 1 << 35, (rows,), device=DEVICE)
        self.sums = torch.zeros(rows, dtype=torch.int64, device=DEVICE)

    def by(self, cut: PersistentTiling | None) -> Run:
        """Return what multiplies by a weight, and ends the product: a cut, or the library."""
        normed = Normed(self.x, self.squares)
        if self.kind == Kind.ADDED:
            return lambda weight: self._added(weight, cut)
        if self.kind == Kind.GATED:
            return lambda weight: (
                (cuda_normed(normed, weight, EPS, cut) if cut else kernel.linear_gated(normed, weight, EPS)),
            )
        return lambda weight: (
            (cuda_normed(normed, weight, EPS, cut) if cut else kernel.linear_normed(normed, weight, EPS)),
        )

    def _added(self, weight: Tensor, cut: PersistentTiling | None) -> Outcome:
        self.sums.zero_()
        if cut:
            normed, total = cuda_added(self.x, weight, self.stream, self.norm, self.sums, 0.0, cut)
        else:
            normed, total = kernel.linear_added(
                self.x, weight, self.stream, self.norm, EPS, keep=True, squares_T=self.sums
            )
        assert normed.squares_T is not None, "rows of bfloat16 are divided later"
        return normed.rows_TD, normed.squares_T, total

    def differ(self, cuts: list[PersistentTiling]) -> set[PersistentTiling]:
        """Return those with other bits than the library: on random operands, and on halves that cancel one another."""
        plain, half = self.weights[0], self.depth // 2
        cancelling = torch.cat([plain[:, :half], -plain[:, :half] + 1e-3 * plain[:, half:]], 1)
        wrong: set[PersistentTiling] = set()
        for weight, x in ((plain, self.x), (cancelling, torch.cat([self.x[:, :half]] * 2, 1))):
            before, self.x = self.x, x
            with by_library():
                wanted = tuple(part.clone() for part in self.by(None)(weight))
            for cut in cuts:
                found = self.by(cut)(weight)
                if not all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True)):
                    wrong.add(cut)
            self.x = before
        return wrong

    def micros(self, cut: PersistentTiling | None, clock: GpuClock) -> float:
        """Return what a product takes under load, with what follows it."""
        run = self.by(cut)
        launches = max(len(self.weights), math.ceil(_CAPTURED_US / (seconds_of(self) * 1e6)))

        def step() -> None:
            for number in range(launches):
                run(self.weights[number % len(self.weights)])

        with by_library():
            replay = clock.captured(step)
        return min(clock.hot(replay, _LOOP_S) for _ in range(_LOOPS)) / launches


def seconds_of(bench: Bench) -> float:
    """Return what the model expects of the rule's cut."""
    cut = ruled_cut(bench.lines, bench.depth, bench.rows, bench.kind)
    assert cut is not None, "a public model's weight can be cut"
    return seconds(cut, bench.lines, bench.depth, bench.rows)


@contextmanager
def by_library() -> Iterator[None]:
    """Products without a cut of their own go through the library meanwhile."""
    with mock.patch.object(kernel, "cuda_tiling", return_value=None):
        yield


def _random(*sizes: int, scale: float = 1.0) -> Tensor:
    return torch.randn(*sizes, device=DEVICE).mul_(scale).to(torch.bfloat16)


def told(cut: PersistentTiling | None) -> str:
    """A cut in short."""
    return f"{cut.rows}x{cut.band} {cut.share}:{cut.across}" if cut else "library"


def cuts_of(lines: int, depth: int, kind: Kind, rows: int, most: int) -> list[PersistentTiling]:
    """Return the rule's cut, then others that it finds near."""
    return shortlist(lines, depth, rows, kind, most + 2)


def compile_all(cuts: list[PersistentTiling]) -> None:
    """Compile what is timed, in as many processes as there are processors, before the GPU is asked for anything."""
    with ProcessPoolExecutor(mp_context=get_context("fork")) as pool:
        list(pool.map(_compile, cuts))


def _compile(cut: PersistentTiling) -> None:
    _compiled(source_of(cut), "product")


def entry_of(bench: Bench, cut: PersistentTiling | None) -> Entry:
    """Return the entry of a table that lets a cut serve."""
    sizes = table_sizes(cut) if cut else None
    return Entry("tiles", bench.lines, bench.depth, bench.kind.name.lower(), "bf16", bench.rows, sizes)


def table_sizes(cut: PersistentTiling) -> dict[str, int]:
    """Return what a table says of a cut."""
    sizes = cut._asdict()
    return {key: value for key, value in sizes.items() if value != _DEFAULTS[key] and key not in ("kind", "wide")}


def main(given: Sequence[str] | None = None) -> int:
    """Returns 1 where a cut has other bits than the library."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.products.ruled", description=__doc__)
    parser.add_argument("--hidden", type=int, nargs="*", default=list(PRODUCTS))
    parser.add_argument("--rows", type=int, nargs="*", default=list(ROWS))
    parser.add_argument("--most", type=int, default=3, help="cuts of a product; two in clusters of four come on top")
    parser.add_argument("--seconds", type=float, default=220.0, help="no product is begun later")
    parser.add_argument("--save", type=Path, help="file of the entries")
    chosen = parser.parse_args(given)
    start = time.monotonic()
    named = [(name, weight) for hidden in chosen.hidden for name, weight in PRODUCTS[hidden].items()]
    todo = [(name, weight, rows) for rows in chosen.rows for name, weight in named]
    every = {(weight, rows): cuts_of(*weight, rows, chosen.most) for _, weight, rows in todo}
    compile_all(list(dict.fromkeys(cut for cuts in every.values() for cut in cuts)))
    print(f"{time.monotonic() - start:.0f} s to compile. us; rows x lines, CTAs that share lines : that share rows")
    entries, wrong = [], 0
    with torch.inference_mode():
        clock = GpuClock()
        for name, weight, rows in todo:
            if time.monotonic() - start > chosen.seconds:
                print(f"no time for {name} x {rows} and what follows")
                break
            bench, cuts = Bench(weight, rows), every[weight, rows]
            differ = bench.differ(cuts)
            wrong += len(differ)
            times = {cut: bench.micros(cut, clock) for cut in [None, *cuts] if cut not in differ}
            quickest = min(times, key=times.__getitem__)
            entries.append(entry_of(bench, quickest))
            rest = ", ".join(f"{told(cut)} {us:.1f}" for cut, us in list(times.items())[1:])
            print(f"{weight[1]:>6} {name:<8}{rows:>4}  library {times[None]:.1f} | rule {rest}", flush=True)
            for cut in differ:
                print(f"        OTHER BITS: {cut}")
    if chosen.save:
        chosen.save.write_text(text_of(Table(torch.cuda.get_device_name(), tuple(entries))))
    print(f"{time.monotonic() - start:.0f} s, {wrong} cuts with other bits")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
