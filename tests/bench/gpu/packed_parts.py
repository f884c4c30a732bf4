"""python -m tests.bench.gpu.packed_parts: cuts of packed products ranked, and what parts of their kernel take.

Bits first, for each cut. A line a cut, the quickest first.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from services.common.kernels.cuda import Source
from services.common.kernels.cuda_program import CudaProgram, _compiled
from services.common.kernels.linear import Normed, linear, linear_added, linear_gated
from services.common.kernels.linear.cublas import keep_order
from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.packed import launch
from services.common.kernels.linear.packed.source import source_of
from services.common.kernels.linear.packed.tiling import PackedTiling, packed_cut
from services.common.kernels.linear.packed_weight import PackedWeight
from tests.bench.gpu.int8.candidates import EPS, Product, products
from tests.bench.gpu.packed import _everything, _micros, _packed, _random
from tests.bench.gpu.shapes import SHAPES

BYTES = 256 << 20
WITHOUT = {
    "widening": [("scales[part].widen(codes[word / 4][part][word % 4], sixteen % PIECES, wide);",
                  "wide[0] = codes[word / 4][part][word % 4], wide[1] = wide[0];")],
    "products": [("mma(sums, one, rows + at / 4 * (X_BYTES / 16) + at % 4 * 2);", "(void)at;"),
                 ("right[sixteen].multiply(sums, one);", "")],
    "rows": [("SUBS * (X_SUB + W_SUB));\n    const int part", "SUBS * W_SUB);\n    const int part"),
             ("box < BOXES * SUBS", "box < 0")],
    "scales": [("at < groups * EACH", "at < EACH")],
}  # fmt: skip
KINDS = {"swiglu": Kind.GATED, "sum": Kind.ADDED, "": Kind.PLAIN}
TWO = {"ring": 112 << 10, "ctas": 2}
PAIR = {"paired": 1, "batch": 8}
FEW: list[dict[str, int]] = [
    {}, {"batch": 8}, {"row_bytes": 64}, TWO, TWO | {"batch": 8}, TWO | {"row_bytes": 64, "subs": 1}, {"subs": 1}, {"subs": 2},
    TWO | {"row_bytes": 64, "subs": 2}, {"across": 2},
]  # fmt: skip
MANY: list[dict[str, int]] = [
    {"across": 2}, {"share": 2}, {"share": 2, "row_bytes": 64}, {"share": 2, "batch": 8}, {"share": 1}, {"share": 4},
    {"share": 4, "row_bytes": 64}, {"share": 2, "subs": 1} | PAIR, {"share": 2, "subs": 2} | PAIR, {"share": 2} | TWO,
]  # fmt: skip


class Without(Source):
    """A source that leaves a part out."""

    def headers(self) -> dict[str, str]:
        found = super().headers()
        for old, new in CHANGES[0]:
            assert sum(old in text for text in found.values()) == 1, old
            found = {name: text.replace(old, new) for name, text in found.items()}
        return found


CHANGES: list[list[tuple[str, str]]] = [[]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=95)
    parser.add_argument("--rows", type=int, nargs="*", default=[16, 64, 128])
    parser.add_argument("--names", nargs="*", default=["o", "gate_up", "down", "qkv"])
    parser.add_argument("--kinds", nargs="*", default=["blocks", "four-f16"])
    chosen = parser.parse_args()
    end = time.perf_counter() + chosen.seconds
    subjects = [one for name in chosen.names for one in products(SHAPES["qwen3-8b"])[:-1] if one.name == name]
    wanted = [(subject, rows, kind) for rows in chosen.rows for subject in subjects for kind in chosen.kinds]
    cuts = list({cut: None for one in wanted for cut, _ in _cuts(*one)})
    with ProcessPoolExecutor(14, get_context("fork")) as pool:
        list(pool.map(_compile, cuts))
    keep_order()
    print(f"{len(cuts)} compiled, {end - time.perf_counter():.0f} s left", flush=True)
    for subject, kind in dict.fromkeys((subject, kind) for subject, _, kind in wanted):
        if time.perf_counter() < end:
            ranked(subject, kind, chosen.rows)
    print("\n".join(SUMMARY))
    return 0


def _cuts(subject: Product, rows: int, kind: str) -> list[tuple[PackedTiling, dict[str, int]]]:
    bits, fine = (8, False) if kind == "blocks" else (4, True)
    found: dict[PackedTiling, dict[str, int]] = {}
    for forced in FEW if rows <= 32 else MANY:
        cut = packed_cut(subject.outputs, subject.depth, rows, KINDS[subject.follows], subject.depth // 128, fine,
                         not kind.endswith("f16"), bits, **forced)  # fmt: skip
        most = 8 if cut and cut.warps > 16 else 32
        if cut and cut.paired and cut.few:
            continue
        if cut and (not cut.paired or cut.depth <= 16 * most) and cut.row_box % 8 == 0 and cut.line_box % 8 == 0:
            found.setdefault(cut, forced)
    return list(found.items())


def _compile(cut: PackedTiling) -> None:
    try:
        _compiled(source_of(cut), "product")
    except Exception as error:  # noqa: BLE001
        print("refused", cut, str(error)[:300], flush=True)


def ranked(subject: Product, kind: str, counts: list[int]) -> None:
    random = partial(_random, device="cuda", dtype=torch.bfloat16)
    one = _packed(random(subject.outputs, subject.depth, 1), kind)
    wide_FD = one.widened()
    copies = [one, *(one.each(torch.clone) for _ in range(BYTES // one.nbytes))]
    wides = [wide_FD, *(wide_FD.clone() for _ in range(BYTES // wide_FD.nbytes))]
    for rows in counts:
        x_TD, stream_TF = random(rows, subject.depth, 5), random(rows, subject.outputs, 6)
        expected = _everything(subject, x_TD, stream_TF, wide_FD)
        bf16 = _time(subject, x_TD, stream_TF, wides)
        found: list[tuple[float, Any, bool]] = []
        first = None
        for cut, forced in _cuts(subject, rows, kind):
            try:
                with patch.object(
                    launch, "packed_cut", lambda *_, cut=cut: cut if _[3] == cut.kind else packed_cut(*_)
                ):
                    equal = all(map(torch.equal, _everything(subject, x_TD, stream_TF, one), expected))
                    micros = _time(subject, x_TD, stream_TF, copies)
                found.append((micros, (forced, cut.lines, cut.subs, cut.stages), equal))
                first = first or cut
            except Exception as error:  # noqa: BLE001
                print("failed", forced, str(error)[:200], flush=True)
                torch.cuda.synchronize()
        print(f"{subject.name} {rows} {kind}: bytes {one.nbytes / 4.3e6:.1f} us, bf16 {bf16} us", flush=True)
        for micros, told, equal in sorted(found, key=lambda each: each[0]):
            print(
                f"  {micros:7.2f} us {one.nbytes / micros / 1e6:5.2f} TB/s {'' if equal else 'DIFFERS'} {told}",
                flush=True,
            )
        least = min(found, key=lambda each: each[0])[:2]
        differ = sum(not equal for *_, equal in found)
        SUMMARY.append(
            f"{subject.name} {rows} {kind} bf16 {bf16} floor {one.nbytes / 4.3e6:.1f} best {least} differ {differ}"
        )
        for part, changes in WITHOUT.items() if rows == 16 or rows == 128 else ():
            CHANGES[0] = changes
            source = source_of(first)
            program = CudaProgram(Without(source.file, source.build), "product", first.threads, first.shared_bytes)
            with (
                patch.object(launch, "program_of", lambda _, program=program: program),
                patch.object(launch, "packed_cut", lambda *_, first=first: first),
            ):
                print(f"  {_time(subject, x_TD, stream_TF, copies):7.2f} us without {part}", flush=True)


SUMMARY: list[str] = []


def _time(subject: Product, x_TD: Tensor, stream_TF: Tensor, weights: list[PackedWeight] | list[Tensor]) -> float:
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
