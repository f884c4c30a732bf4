"""python -m tests.bench.gpu.packed_parts: cuts of packed products ranked, and what parts of their kernel take.

Bits first, for each cut. A line a cut, the quickest first.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from services.common.kernels.cuda import Source
from services.common.kernels.cuda_program import CudaProgram
from services.common.kernels.linear import Normed, linear, linear_added, linear_gated
from services.common.kernels.linear.cublas import keep_order
from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.packed import launch
from services.common.kernels.linear.packed.source import source_of
from services.common.kernels.linear.packed.tiling import PackedTiling, packed_cut
from services.common.kernels.linear.packed_weight import PackedWeight
from tests.bench.gpu.int8.candidates import EPS, Product, products
from tests.bench.gpu.packed import BEHIND, FOLLOWS, PACKINGS, _everything, _micros, _packed, _random, compile_all
from tests.bench.gpu.shapes import SHAPES

BYTES = 256 << 20
WITHOUT = {
    "widening": [("          widen(rings.codes.at(box), rings.wide.at(at), step);\n", "")],
    "products": [("mma(sums, x + 2 * part, weight + 2 * part);", "(void)x, (void)weight;")],
}
EVERYWHERE = "blocks"
"""Scales that are looked at for all numbers of rows, others for those of `--parts` alone."""
CUTS: dict[int, list[dict[str, int]]] = {
    32: [{}, {"subs": 2}, {"subs": 1}, {"turns": 1, "warps": 8, "wides": 3}],
    64: [{}],
    128: [{}, {"subs": 1, "thick": 1}, {"rows": 64}],
    4096: [{}],
}


class Without(Source):
    """A source that leaves a part out."""

    changes: list[tuple[str, str]]

    def headers(self) -> dict[str, str]:
        found = super().headers()
        for old, new in self.changes:
            assert sum(old in text for text in found.values()) == 1, old
            found = {name: text.replace(old, new) for name, text in found.items()}
        return found


def without(cut: PackedTiling, part: str) -> Source:
    source = Without(*source_of(cut))
    source.changes = WITHOUT[part]
    return source


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=95)
    parser.add_argument("--rows", type=int, nargs="*", default=[16, 64, 128])
    parser.add_argument("--names", nargs="*", default=["gate_up", "down", "o", "qkv"])
    parser.add_argument("--kinds", nargs="*", default=["blocks", "four-f16"])
    parser.add_argument("--parts", type=int, nargs="*", default=[16, 128])
    parser.add_argument("--compile", action="store_true", help="and no more; needs no GPU")
    chosen = parser.parse_args()
    end = time.perf_counter() + chosen.seconds
    subjects = [one for name in chosen.names for one in products(SHAPES["qwen3-8b"])[:-1] if one.name == name]
    counts = {kind: chosen.rows if kind == EVERYWHERE else chosen.parts for kind in chosen.kinds}
    wanted = [(subject, rows, kind) for subject in subjects for kind in chosen.kinds for rows in counts[kind]]
    sources: list[Source] = []
    for subject, rows, kind in wanted:
        cuts = [cut for cut, _ in _cuts(subject, rows, kind)]
        sources += map(source_of, cuts)
        sources += [without(cuts[0], part) for part in WITHOUT] if rows in chosen.parts else []
    compile_all(sources)
    print(f"{len(sources)} compiled, {end - time.perf_counter():.0f} s left", flush=True)
    if chosen.compile:
        return 0
    keep_order()
    for kind in chosen.kinds:
        for subject in subjects:
            if time.perf_counter() < end:
                ranked(subject, kind, counts[kind], chosen.parts)
    print("\n".join(SUMMARY))
    return 0


def _cuts(subject: Product, rows: int, kind: str) -> list[tuple[PackedTiling, str]]:
    what, packing = FOLLOWS[subject.follows], PACKINGS[kind](subject.depth // 128)
    found: dict[PackedTiling, str] = {}
    for forced in CUTS[next(most for most in CUTS if rows <= most)]:
        cut = packed_cut(subject.outputs, subject.depth, rows, what, packing, tuple(forced.items()))
        if cut and cut.subs <= cut.thick * 16 // packing.bits and cut.warps % cut.turns == 0:
            found.setdefault(cut, f"{forced} {cut.rows}x{cut.band} {cut.stages}x{cut.subs} {cut.boxes}x{cut.thick}")
    return list(found.items())


def ranked(subject: Product, kind: str, counts: list[int], parts: list[int]) -> None:
    random = partial(_random, device="cuda", dtype=torch.bfloat16)
    one = _packed(random(subject.outputs, subject.depth, 1), kind)
    wide_FD = one.widened()
    copies = [one, *(one.each(torch.clone) for _ in range(BYTES // one.nbytes))]
    wides = [wide_FD, *(wide_FD.clone() for _ in range(BYTES // wide_FD.nbytes))]
    for rows in counts:
        beside_TD = torch.full((rows + BEHIND, subject.depth), torch.nan, dtype=torch.bfloat16, device="cuda")
        beside_TD[:rows] = random(rows, subject.depth, 5)
        x_TD, stream_TF = beside_TD[:rows], random(rows, subject.outputs, 6)
        expected = _everything(subject, x_TD, stream_TF, wide_FD)
        floor, bf16 = one.nbytes / 4.3e6, _time(subject, x_TD, stream_TF, wides)
        cuts, found = _cuts(subject, rows, kind), []
        for cut, told in cuts:
            try:
                with patch.object(launch, "cut_of", partial(_forced, cut)):
                    equal = all(map(torch.equal, _everything(subject, x_TD, stream_TF, one), expected))
                    found.append((_time(subject, x_TD, stream_TF, copies), told, equal))
            except Exception as error:
                print("failed", told, str(error)[:200], flush=True)
                torch.cuda.synchronize()
        print(f"{subject.name} {rows} {kind}: bytes {floor:.1f} us, bf16 {bf16} us", flush=True)
        for micros, told, equal in sorted(found):
            print(f"  {micros:7.2f} us {'' if equal else 'DIFFERS'} {told}", flush=True)
        SUMMARY.append(f"{subject.name} {rows} {kind} bf16 {bf16} floor {floor:.1f} best {min(found)[:2]} differ "
                       f"{sum(not equal for *_, equal in found)}")  # fmt: skip
        for part in WITHOUT if rows in parts else ():
            first = cuts[0][0]
            program = CudaProgram(without(first, part), "product", first.threads, first.shared_bytes)
            with patch.object(launch, "program_of", lambda _, program=program: program):
                print(f"  {_time(subject, x_TD, stream_TF, copies):7.2f} us without {part}", flush=True)


def _forced(cut: PackedTiling, weight: PackedWeight, rows: int, kind: Kind) -> PackedTiling | None:
    """A plain product beside goes as the cut does, but for what follows."""
    return cut if kind == cut.kind else None


SUMMARY: list[str] = []


def _time(subject: Product, x_TD: Tensor, stream_TF: Tensor, weights: list[Any]) -> float:
    squares_T = torch.ones(len(x_TD), dtype=torch.int64, device="cuda")

    def served(one: PackedWeight | Tensor) -> object:
        if subject.follows == "swiglu":
            return linear_gated(Normed(x_TD, squares_T), one, EPS)
        if subject.follows == "sum":
            return linear_added(x_TD, one, stream_TF, stream_TF[0], EPS, keep=True, squares_T=squares_T)
        return linear(x_TD, one)

    return _micros([partial(served, one) for one in weights])


if __name__ == "__main__":
    sys.exit(main())
