"""The products of a draft, the cuts that a search times, and a way to compile them all at once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import product

import torch
from torch import Tensor

from services.common.kernels.linear import int8_kernel, kernel
from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.int8_kernel import Cut
from services.common.kernels.linear.int8_weight import Int8Weight, quantised
from services.common.kernels.linear.persistent.tiling import FEW_ROWS, SUB, PersistentTiling
from services.common.kernels.linear.tiling import Int8Cut, int8_cut
from services.common.kernels.normed import Normed
from tests.bench.gpu.int8.eight import tilings
from tests.support.tiny_checkpoints import TinyShape

EPS = 1e-6
_COMPILERS, _LINES, _DEPTH = 14, 512, 512

_FEW = (
    Int8Cut(16, 64, 128, stages=6), Int8Cut(16, 64, 256, stages=6), Int8Cut(16, 128, 128, stages=6),
)  # fmt: skip
_SOME = (
    Int8Cut(64, 32, 256, stages=6), Int8Cut(64, 64, 256, stages=5), Int8Cut(64, 128, 256),
)  # fmt: skip
_MANY = (
    Int8Cut(64, 64, 256, stages=5), Int8Cut(128, 64, 256), Int8Cut(256, 128, 128, 8), Int8Cut(128, 128, 128, 8, 5),
    Int8Cut(128, 128, 256, 8, 3), Int8Cut(128, 256, 128, 8),
)  # fmt: skip


@dataclass(frozen=True)
class Product:
    """A weight of a block or the head, and what follows it there: nothing, SwiGLU, or the sum with the stream."""

    name: str
    outputs: int
    depth: int
    follows: str = ""

    def __call__(self, x_TD: Tensor, weight: Tensor | Int8Weight, cut: Cut | None = None) -> Tensor:
        """Multiply as a draft does; in eight bits by that cut, or by that of the table."""
        squares_T, stream_TF, norm_F = _beside(len(x_TD), self.outputs, x_TD.dtype, x_TD.device, self.follows)
        if self.follows == "swiglu":
            normed = Normed(x_TD, squares_T)
            if isinstance(weight, Int8Weight):
                return int8_kernel.linear_gated(normed, weight, EPS, cut)
            return kernel.linear_gated(normed, weight, EPS)
        if self.follows == "sum":
            if isinstance(weight, Int8Weight):
                return int8_kernel.linear_added(x_TD, weight, stream_TF, norm_F, EPS, 0.0, squares_T, cut)[1]
            return kernel.linear_added(x_TD, weight, stream_TF, norm_F, EPS, True, 0.0, squares_T)[1]
        if isinstance(weight, Int8Weight):
            return int8_kernel.linear(x_TD, weight, None, cut)
        return kernel.linear(x_TD, weight)


@cache
def _beside(rows: int, outputs: int, dtype: torch.dtype, device: torch.device, follows: str) -> tuple[Tensor, ...]:
    """Squares, a stream and a norm's weight."""
    inner = outputs if follows == "sum" else 0
    ones = (torch.ones(shape, dtype=dtype, device=device) for shape in ((rows, inner), (inner,)))
    return torch.ones(rows, dtype=torch.int64, device=device), *ones


def products(shape: TinyShape) -> tuple[Product, ...]:
    """Those of a layer, and the head."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return (
        Product("qkv", queries + 2 * keys, shape.hidden),
        Product("o", shape.hidden, queries, "sum"),
        Product("gate_up", 2 * shape.inner, shape.hidden, "swiglu"),
        Product("down", shape.hidden, shape.inner, "sum"),
        Product("head", shape.vocab, shape.hidden),
    )


def candidates(subject: Product, rows: int, searched: bool) -> tuple[Int8Cut, ...]:
    """The cuts that are timed at so many rows; the first is that of the table."""
    listed = _FEW if rows <= 16 else _SOME if rows <= 64 else _MANY
    return tuple(dict.fromkeys((int8_cut(subject.outputs, rows), *(listed if searched else ()))))


def in_cuda(subject: Product, rows: int) -> tuple[PersistentTiling, ...]:
    """The tilings in CUDA C++ that a search times at so many rows; they are compiled when they are."""
    kind = {"swiglu": Kind.GATED, "sum": Kind.ADDED}.get(subject.follows, Kind.PLAIN)
    found = tilings(subject.name, rows) if rows > FEW_ROWS else ()
    return tuple(cut for cut in found if cut.kind == kind and subject.depth % (cut.subs * SUB) == 0)


def compile_cuts(shape: TinyShape, counts: Sequence[int], searched: bool, device: str) -> int:
    """Compile every candidate in processes of their own, which leave it in Triton's cache; return how many."""
    wanted = {
        (cut, subject.follows, 1 if rows == 1 else 16 if rows % 16 == 0 else 8)
        for subject, rows in product(products(shape), counts)
        for cut in candidates(subject, rows, searched)
    }
    with ProcessPoolExecutor(_COMPILERS, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_compile, *zip(*sorted(wanted), strict=True), [device] * len(wanted), chunksize=3))
    return len(wanted)


def _compile(cut: Int8Cut, follows: str, rows: int, device: str) -> None:
    """One launch of a small product: a kernel is compiled for kinds of sizes, not for sizes."""
    weight = quantised(torch.zeros(_LINES, _DEPTH, dtype=torch.bfloat16, device=device))
    Product("", _LINES, _DEPTH, follows)(torch.zeros(rows, _DEPTH, dtype=torch.bfloat16, device=device), weight, cut)
