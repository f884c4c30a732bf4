"""python -m tests.bench.gpu.dependent: cycles of a step of matrix products that each wait for the one before.

A product adds its whole depth in one order, so a depth of 12,288 inputs is a chain of 768 steps whatever its bytes are.
The forms are those of the instructions, with codes that are widened beside and without. One line a form, on an H100 or
H200; all multiprocessors have the same work.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

import torch

from services.common.kernels.cuda import BUILD, Source, defined, included, read, wgmma
from services.common.kernels.cuda_program import CudaProgram
from tests.bench.gpu.results import tell

FILE = Path(__file__).with_suffix(".cu")
DEPTHS = (4096, 12288)
_SIXTEEN, _PROCESSORS, _SHARED, _REPEATS = 16, 132, 40 * 1024, 7
_FORMS = ("mma.sync", "wgmma from registers", "wgmma from shared memory")
_SIGNATURE = """__device__ __forceinline__ void step(float (&sums)[SUMS], const unsigned (&lines)[4],
    const unsigned (&rows)[4], unsigned base, int at)"""
_STEPS = (
    """asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};" : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "r"(lines[0]), "r"(lines[2]));""",
    "mma(sums, lines, descriptor(base) + 2 * at);",
    "mma(sums, descriptor(base + 8192) + 2 * at, descriptor(base) + 2 * at);",
)
"""By form."""


class Chain(NamedTuple):
    """An instruction's form, rows of `wgmma`, warps of a multiprocessor, and bits of codes; 0: nothing is widened."""

    form: int
    rows: int = 16
    warps: int = 4
    bits: int = 0

    def source(self) -> Source:
        """What is compiled."""
        sync = self.form == 0
        sums = 4 if sync else self.rows // 2
        sizes = defined(sums=sums, warps=self.warps, bits=self.bits, sync=int(sync), short=1, fused=1)
        return _Text(_STEPS[self.form], sizes + ("" if sync else wgmma("mma", self.rows, registers=self.form == 1)))


CHAINS = (
    *(Chain(0, warps=warps) for warps in (4, 16)),
    *(Chain(form, rows, warps) for form in (1, 2) for rows in (8, 16, 32) for warps in (4, 8)),
    *(Chain(form, rows, bits=bits) for bits in (8, 4) for form, rows in ((0, 16), (1, 8), (1, 16))),
)


class _Text(Source):
    """A source of this folder, which includes the kernels' headers; `file` is the form."""

    @property
    def text(self) -> str:
        return FILE.read_text(encoding="utf-8")

    def headers(self) -> dict[str, str]:
        found = {BUILD: f"#pragma once\n{self.build}", "step.cuh": f"{_SIGNATURE} {{\n{self.file}\n}}\n"}
        waiting = included(self.text)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found[name] = read(name)
                waiting += included(found[name])
        return found


def main() -> int:
    """Measures all forms at both depths."""
    argparse.ArgumentParser(prog="python -m tests.bench.gpu.dependent", description=__doc__).parse_args()
    source = torch.randint(0, 1 << 30, (1 << 14,), dtype=torch.int32, device="cuda") & 0x3FFF3FFF
    for chain in CHAINS:
        program = CudaProgram(chain.source(), "product", chain.warps * 32, _SHARED)
        steps = {f"cycles_{depth}": cycles(program, chain.warps, depth, source) for depth in DEPTHS}
        tell({"form": _FORMS[chain.form], **chain._asdict(), **steps})
    return 0


def cycles(program: CudaProgram, warps: int, depth: int, source: torch.Tensor) -> float:
    """Cycles of a step: the median of some launches."""
    took = torch.zeros(warps, dtype=torch.int64, device="cuda")
    out = torch.zeros(_PROCESSORS * warps * 32, device="cuda")
    found = []
    for _ in range(_REPEATS):
        program.launch((_PROCESSORS, 1), took, out, source, depth // _SIXTEEN, early=False)
        found.append(int(took.max()) * _SIXTEEN / depth)
    return round(statistics.median(found), 1)


if __name__ == "__main__":
    sys.exit(main())
