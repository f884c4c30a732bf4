"""python -m tests.bench.gpu.coded_experts: experts in FP8 beside those in bfloat16 on a GPU, bits and then times.

Random weights of layers in the shape of Qwen3-30B-A3B are rounded to codes of e4m3 with scales of blocks. Rows by the
codes are compared with rows by the numbers that these mean, in every tiling. Then both are timed as
`tests.bench.gpu.experts` times a layer, the codes with our own tiling and others. Under TRITON_INTERPRET=1 a tiny shape
is compared, and nothing is timed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from services.common.kernels.ahead import compiled_ahead
from services.common.kernels.dispatch import INTERPRETED
from services.common.kernels.experts.kernel import ExpertStack
from services.common.kernels.experts.scales import ExpertScales
from services.common.kernels.experts.tiling import Tiling, tiling
from services.common.kernels.linear.cublas import keep_order
from services.common.kernels.linear.packed_weight import Codes, dealt, nearest_codes
from tests.bench.gpu.experts import COPIES, SERVED, SHAPES, Layer, Shape, floor, micros

TINY = Shape("tiny", 128, 128, 6, 3)
ROWS = (1, 8, 32, 256, 2048)
_NARROW = ((64, 128, 4, 3), (64, 128, 4, 4), (64, 128, 4, 6))
_WIDE = ((128, 128, 4, 3), (128, 128, 8, 3), (256, 128, 8, 3))
"""Lines, columns, warps, stages, and how many more rows a tile may have: of fewer than 64 rows, and of others."""


class CodedLayer(Layer):
    """A layer whose experts are codes; `numbers` are what these mean."""

    def __init__(self, shape: Shape, rows: int, device: str, dtype: torch.dtype, seed: int) -> None:
        super().__init__(shape, rows, device, dtype, seed)
        own = self.stack
        (first, one), (second, other) = (_coded(stack) for stack in (own.gate_up_EFD, own.down_EDF))
        self.codes = ExpertStack(first, second, scales=(one, other))
        self.numbers = ExpertStack(one.widened(first).to(dtype), other.widened(second).to(dtype))

    def take(self, stack: ExpertStack) -> None:
        """Multiply by one of both from now on."""
        self.stack = stack


def _coded(stack_EFD: Tensor) -> tuple[Tensor, ExpertScales]:
    parts = [_nearest(weight_FD) for weight_FD in stack_EFD]
    codes_EFD = torch.stack([dealt(part.codes_FD).flatten(1) for part in parts])
    return codes_EFD, ExpertScales.of([part.scale_FG for part in parts], codes_EFD.device)


def _nearest(weight_FD: Tensor) -> Codes:
    found = nearest_codes(weight_FD)
    assert found is not None, "a shape has whole blocks"
    return found


def cuts(shape: Shape, rows: int) -> tuple[Tiling, ...]:
    """Tilings of codes for so many rows, our own first."""
    own = tiling(rows * shape.top_k, shape.count, coded=True)
    if INTERPRETED:
        return own, replace(own, more=16)
    return tuple(dict.fromkeys((own, *(Tiling(own.rows, *rest) for rest in (_NARROW if own.rows < 64 else _WIDE)))))


def differing(layer: CodedLayer, counts: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Each check with the number of rows by codes that differ from those by numbers."""
    for rows in counts:
        part = slice(0, rows)
        gates_TF = layer.gates(part)
        layer.take(layer.numbers)
        # The interpreter adds up a step's columns as its library likes: 128 of float32, as codes have.
        alike = replace(cuts(layer.shape, rows)[0], depth=256) if INTERPRETED else None
        expected_TD = layer.mixed(part, gates_TF, alike)
        layer.take(layer.codes)
        for cut in cuts(layer.shape, rows):
            yield f"{rows} rows, {cut}", int((layer.mixed(part, gates_TF, cut) != expected_TD).any(1).sum())
        alone_TD = torch.zeros_like(expected_TD[:16])
        if not INTERPRETED and all(layer.alone(row, alone_TD[row : row + 1]) for row in range(len(alone_TD))):
            yield f"{len(alone_TD)} rows alone", int((alone_TD != expected_TD[: len(alone_TD)]).any(1).sum())


def compile_all(layer: CodedLayer, counts: Sequence[int]) -> None:
    """Compile what will be timed, in threads."""
    with compiled_ahead(os.cpu_count() or 1):
        for rows in counts:
            layer.take(layer.numbers)
            layer.stages(rows, tiling(rows * layer.shape.top_k, layer.shape.count), "combine")
            layer.take(layer.codes)
            for cut in cuts(layer.shape, rows):
                layer.stages(rows, cut, "combine")
                layer.stages(rows, cut, SERVED)


def lines_of(layers: Sequence[CodedLayer], rows: int) -> Iterator[str]:
    """Yield what a layer takes by numbers, and by codes in each tiling: products, the whole, and the ratio."""
    shape = layers[0].shape
    for layer in layers:
        layer.take(layer.numbers)
    own, (distinct, floor_us) = tiling(rows * shape.top_k, shape.count), floor(layers, rows)
    routed, up, down, whole = (micros(layers, rows, own, stage) for stage in ("sort", "up", "down", SERVED))
    yield f"{rows:5} bf16 up {up - routed:5.1f} down {down - up:5.1f} all {whole:6.1f} of {floor_us:.1f} {distinct:.0f}"
    for layer in layers:
        layer.take(layer.codes)
    for cut in cuts(shape, rows):
        routed, up, down, mine = (micros(layers, rows, cut, stage) for stage in ("sort", "up", "down", SERVED))
        named = f"{cut.rows}+{cut.more}x{cut.band}x{cut.depth} w{cut.warps} s{cut.stages}"
        yield f"{rows:5}  fp8 up {up - routed:5.1f} down {down - up:5.1f} all {mine:6.1f} x{whole / mine:5.2f} {named}"


def main() -> int:
    """Returns 1 where a bit differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS, help="numbers of rows that are timed")
    asked = parser.parse_args()
    device, dtype = ("cpu", torch.float32) if INTERPRETED else ("cuda", torch.bfloat16)
    shape, counts = (TINY, (1, 9)) if INTERPRETED else (SHAPES[0], tuple(asked.rows))
    with torch.inference_mode():
        layers = [CodedLayer(shape, max(counts), device, dtype, seed) for seed in range(1 if INTERPRETED else COPIES)]
        if not INTERPRETED:
            keep_order()
            compile_all(layers[0], counts)
        checks = list(differing(layers[0], counts))
        for name, count in checks:
            if count:
                print(f"{count} rows differ: {name}", flush=True)
        differ = sum(count for _, count in checks)
        print(f"{shape.name}: {len(checks)} checks of bits, {differ} rows differ", flush=True)
        for rows in () if INTERPRETED else counts:
            for line in lines_of(layers, rows):
                print(line, flush=True)
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
