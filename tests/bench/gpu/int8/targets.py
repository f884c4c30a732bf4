"""python -m tests.bench.gpu.int8.targets: products and rounds of a target whose rows and weights have eight bits.

First every product of a block is compared at many numbers of rows, with NaN behind them: a plain one with the exact
sums, one that something follows with itself at the most rows. Then captured rounds are timed beside those in bfloat16.
One line a figure, the verdict last; exits with 1 where a bit differs.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from services.common.kernels.linear import Normed, linear, linear_added, linear_gated, reference
from services.common.kernels.linear.cublas import keep_order
from services.common.kernels.linear.int8_weight import Int8Weight, quantised
from tests.bench.gpu.int8.candidates import EPS, Product, products
from tests.bench.gpu.results import tell, verdict
from tests.bench.gpu.rig import Rig, RigSettings
from tests.bench.gpu.shapes import SHAPES, TINY
from tests.support.tiny_checkpoints import TinyShape

Row = dict[str, Any]
ROWS = (1, 2, 8, 16, 17, 32, 33, 64, 65, 128, 256, 512, 1024, 4096)
BEHIND = 70
"""Rows of NaN behind those of a product: more than a tile of few rows has."""
BANDWIDTH = 4.3e12
"""Bytes a second that a round can hope for."""
CONTEXT = 512


def main() -> int:
    """Compares, then times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["products", "rounds"], help="products, rounds")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="qwen3-8b")
    parser.add_argument("--buckets", type=int, nargs="*", default=[1, 8, 32], help="sequences of a round")
    parser.add_argument("--tiny", action="store_true", help="a tiny model on a CPU")
    chosen = parser.parse_args()
    shape, device = (TINY, "cpu") if chosen.tiny else (SHAPES[chosen.shape], "cuda")
    rows: list[Row] = []
    if not chosen.tiny:
        keep_order()
    for subject in products(shape)[:-1] if "products" in chosen.parts else ():
        rows.append(compared(subject, ROWS[:8] if chosen.tiny else ROWS, device))
        tell(rows[-1])
    for activations in ("auto", "int8") if "rounds" in chosen.parts else ():
        for row in rounds(shape, chosen.buckets, activations, device):
            rows.append(row)
            tell(row)
        gc.collect()
        if not chosen.tiny:
            torch.cuda.empty_cache()
    return verdict(rows)


def compared(subject: Product, counts: tuple[int, ...], device: str) -> Row:
    """Compare a product at these numbers of rows; NaN stands behind the rows and in the scales beside the weight's."""
    begin, dtype = time.perf_counter(), torch.float32 if device == "cpu" else torch.bfloat16
    generator = torch.Generator(device).manual_seed(7)

    def random(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator, device=device, dtype=dtype)

    weight = _between(quantised(random(subject.outputs, subject.depth).mul_(subject.depth**-0.5)))
    x_TD, stream_TF = random(counts[-1], subject.depth), random(counts[-1], subject.outputs)
    whole = _followed(subject, weight, x_TD, stream_TF)
    exact_TF = reference.linear(x_TD, weight)
    differ = []
    for count in counts:
        some_TD = torch.full((count + BEHIND, subject.depth), torch.nan, dtype=dtype, device=device)
        some_TD[:count] = x_TD[:count]
        plain = torch.equal(linear(some_TD[:count], weight), exact_TF[:count])
        parts = _followed(subject, weight, some_TD[:count], stream_TF[:count].clone())
        same = all(torch.equal(one, other[:count]) for one, other in zip(parts, whole, strict=True))
        differ += [] if plain and same else [count]
    seconds = round(time.perf_counter() - begin, 1)
    return {"product": subject.name, "compared": 2 * len(counts), "differ": differ, "s": seconds}


def _between(weight: Int8Weight) -> Int8Weight:
    """The same weight in memory whose scales before and behind are NaN."""
    lines = len(weight)
    scale_F = torch.full((lines + 512,), torch.nan, device=weight.device)
    scale_F[256 : 256 + lines] = weight.scale_F
    return Int8Weight(weight.whole_FD, scale_F[256 : 256 + lines], weight.dtype)


def _followed(subject: Product, weight: Int8Weight, x_TD: Tensor, stream_TF: Tensor) -> tuple[Tensor, ...]:
    """Return all that a product leaves with what follows it in a block."""
    if subject.follows == "swiglu":
        squares_T = torch.full((len(x_TD),), 3 << 24, dtype=torch.int64, device=x_TD.device) * subject.depth
        return (linear_gated(Normed(x_TD, squares_T), weight, EPS),)
    if subject.follows == "sum":
        norm_F = torch.ones(subject.outputs, dtype=x_TD.dtype, device=x_TD.device)
        normed, total_TF = linear_added(x_TD, weight, stream_TF, norm_F, EPS)
        squares_T = total_TF if normed.squares_T is None else normed.squares_T
        return total_TF, normed.rows_TD, squares_T
    return (linear(x_TD, weight),)


def rounds(shape: TinyShape, buckets: list[int], activations: str, device: str) -> Iterator[Row]:
    """Times of captured verifies of one row and of sixteen for each sequence, and of the draft in eight bits."""
    dtype, memory = ("float32", 1 << 29) if device == "cpu" else ("bfloat16", 60 << 30)
    widths = (1, shape.block_size)
    settings = RigSettings(
        shape, device, dtype, max(buckets), widths, CONTEXT + 2304, memory, 64, activations=activations
    )
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(settings, Path(folder))
        told = {"activations": activations, "weight_gb": round(rig.pool.model.weight_bytes / 1e9, 2)}
        yield {**told, "built_s": round(time.perf_counter() - begin, 1)}
        drafts = rig.drafter(int8=True)
        for bucket in buckets:
            rig.seat(bucket, CONTEXT)
            plain, wide = (_micros(rig, bucket, width) for width in widths)
            rig.worker.runner.publish()
            draft = rig.micros(lambda key=(bucket, widths[-1]): drafts.replay(key))  # type: ignore[misc]
            floor = rig.pool.model.weight_bytes / BANDWIDTH * 1e6
            times = {
                "plain_us": plain,
                "verify_us": wide,
                "draft_us": draft,
                "round_us": wide + draft,
                "bytes_us": floor,
            }
            yield {**told, "bucket": bucket, **{name: round(value) for name, value in times.items()}}


def _micros(rig: Rig, bucket: int, width: int) -> float:
    key = rig.verify_key(bucket, width, CONTEXT)
    return rig.micros(lambda: rig.steps.graphs.replay(key))


if __name__ == "__main__":
    sys.exit(main())
