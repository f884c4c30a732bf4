"""python -m tests.bench.gpu.packed: products and rounds of targets in FP8 and four bits, widened in registers.

First every product of a block is compared at many numbers of rows with that by the widened weight, NaN standing behind
the rows. Then products and captured rounds are timed beside bfloat16. One line a figure, the verdict last; exits with 1
where a bit differs.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from services.common.device.graph import StepGraphs
from services.common.kernels.linear import Normed, linear, linear_added, linear_gated
from services.common.kernels.linear.cublas import keep_order
from services.common.kernels.linear.packed_weight import Codes, PackedWeight, packed, rounded_to_eight, rounded_to_four
from services.common.kernels.linear.packed_widen import widened
from services.common.kernels.linear.weight import Weight
from tests.bench.gpu.int8.candidates import EPS, Product, products
from tests.bench.gpu.int8.timed import replayed
from tests.bench.gpu.results import tell, verdict
from tests.bench.gpu.rig import Rig, RigSettings
from tests.bench.gpu.shapes import FORMATS, SHAPES, TINY
from tests.support.tiny_checkpoints import TinyShape

Row = dict[str, Any]
ROWS = (1, 2, 8, 16, 17, 32, 33, 64, 65, 128, 256, 512, 1024, 4096)
TIMED = (1, 16, 64, 128)
BEHIND, CONTEXT = 70, 512
BANDWIDTH = 4.3e12
"""Bytes a second that can be hoped for."""
CACHE_BYTES, MOST_COPIES, LAYERS = 128 << 20, 8, 4
KINDS = ("blocks", "floats", "four", "four-even", "four-f16")
"""FP8 with scales of blocks in bfloat16, of lines in float32, and four bits with scales in bfloat16 and float16; the
zero points of even ones are 8."""


def main() -> int:
    """Compares, then times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "parts", nargs="*", default=["products", "times", "rounds"], help="products, times, layers, rounds, widen"
    )
    parser.add_argument("--shapes", nargs="*", choices=sorted(SHAPES), default=["qwen3-8b"])
    parser.add_argument("--buckets", type=int, nargs="*", default=[1, 8], help="sequences of a round")
    parser.add_argument("--formats", nargs="*", choices=list(FORMATS), default=list(FORMATS), help="of rounds")
    parser.add_argument("--activations", choices=("auto", "int8", "fp8"), default="auto", help="of rounds")
    parser.add_argument("--codes-alone", action="store_true", help="rounds without numbers beside the codes")
    parser.add_argument("--tiny", action="store_true", help="a tiny model on a CPU")
    chosen = parser.parse_args()
    shapes, device = (
        ([replace(TINY, hidden=256, inner=512, heads=8, kv_heads=8, head_dim=32)], "cpu")
        if chosen.tiny
        else ([SHAPES[name] for name in chosen.shapes], "cuda")
    )
    if not chosen.tiny:
        keep_order()
    rows: list[Row] = []
    for shape in shapes:
        for subject in products(shape)[:-1]:
            rows += _products(subject, chosen.parts, device)
        for name in chosen.formats if "layers" in chosen.parts and device == "cuda" else ():
            for row in layers(products(shape)[:-1], name):
                tell(row)
        for name in chosen.formats if "rounds" in chosen.parts else ():
            for row in rounds(shape, chosen.buckets, name, device, not chosen.codes_alone, chosen.activations):
                rows.append(row)
                tell(row)
            gc.collect()
            if not chosen.tiny:
                torch.cuda.empty_cache()
    return verdict(rows)


def _products(subject: Product, parts: Sequence[str], device: str) -> list[Row]:
    rows = []
    if "products" in parts:
        rows += [compared(subject, kind, device) for kind in KINDS]
    if "times" in parts and device == "cuda":
        rows += list(times(subject))
    if "widen" in parts and device == "cuda":
        rows += [widening(subject, kind) for kind in KINDS]
    for row in rows:
        tell(row)
    return rows


def widening(subject: Product, kind: str) -> Row:
    """Microseconds of a weight widened into memory, as many rows need it, and the bytes a second that they mean."""
    weight = _packed(_random(subject.outputs, subject.depth, 1, device="cuda", dtype=torch.bfloat16), kind)
    equal, micros = torch.equal(widened(weight), weight.widened()), _micros([partial(widened, weight)] * 8)
    size = subject.outputs * subject.depth * (2 + weight.bits / 8)
    found = {"widened_us": micros, "tb_per_s": round(size / micros / 1e6, 2)}
    return {"product": subject.name, "scales": kind, **found, "compared": 1, "differ": [] if equal else [0]}


def compared(subject: Product, kind: str, device: str) -> Row:
    """Compare a product by codes with that by their numbers, of one of `KINDS`."""
    begin, dtype = time.perf_counter(), torch.float32 if device == "cpu" else torch.bfloat16
    random = partial(_random, device=device, dtype=dtype)
    weight = _packed(random(subject.outputs, subject.depth, 1), kind)
    wide_FD = weight.widened()
    differ: list[tuple[int, list[int]]] = []
    for count in ROWS if device == "cuda" else ROWS[:4]:
        beside_TD = torch.full((count + BEHIND, subject.depth), torch.nan, dtype=dtype, device=device)
        beside_TD[:count] = random(count, subject.depth, 2)
        stream_TF = random(count, subject.outputs, 3)
        found, expected = (_everything(subject, beside_TD[:count], stream_TF, one) for one in (weight, wide_FD))
        unequal = [place for place, pair in enumerate(zip(found, expected, strict=True)) if not torch.equal(*pair)]
        differ += [(count, unequal)] if unequal else []
    seconds = round(time.perf_counter() - begin, 1)
    return {"product": subject.name, "lines": subject.outputs, "scales": kind, "compared": len(ROWS), "differ": differ,
            "s": seconds}  # fmt: skip


def _packed(numbers_FD: Tensor, kind: str) -> PackedWeight:
    if kind.startswith("four"):
        half = torch.float16 if kind.endswith("f16") else torch.bfloat16
        weight = rounded_to_four(numbers_FD, symmetric=kind == "four-even", kind=half)
    elif kind == "blocks" and len(numbers_FD) % 128 == 0:
        weight = rounded_to_eight(numbers_FD)
    else:
        scale_F1 = numbers_FD.float().abs().amax(1, keepdim=True) / 440
        weight = packed(Codes((numbers_FD.float() / scale_F1).to(torch.float8_e4m3fn), scale_F1), numbers_FD.dtype)
    assert weight is not None, "kernels take it"
    return weight


def _random(*numbers: int, device: str, dtype: torch.dtype) -> Tensor:
    """The last number is the seed."""
    *sizes, seed = numbers
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(sizes, generator=generator, device=device, dtype=dtype)


def _everything(subject: Product, x_TD: Tensor, stream_TF: Tensor, weight: Weight) -> tuple[Tensor, ...]:
    """Return all that a product leaves, alone and with what follows it in a block."""
    found: tuple[Tensor, ...] = (linear(x_TD, weight),)
    if subject.follows == "swiglu":
        squares_T = torch.arange(3, 3 + len(x_TD), device=x_TD.device) * (subject.depth << 24)
        found += (linear_gated(Normed(x_TD, squares_T), weight, EPS),)
    if subject.follows == "sum":
        norm_F = torch.full((subject.outputs,), 0.75, dtype=x_TD.dtype, device=x_TD.device)
        normed, total_TF = linear_added(x_TD, weight, stream_TF.clone(), norm_F, EPS, keep=True)
        found += (total_TF, normed.rows_TD, *(() if normed.squares_T is None else (normed.squares_T,)))
    return found


def times(subject: Product) -> Iterator[Row]:
    """Microseconds of a product with what follows it, by codes and by numbers, of weights that no cache holds."""
    random = partial(_random, device="cuda", dtype=torch.bfloat16)
    size = subject.outputs * subject.depth
    copies = range(min(MOST_COPIES, 2 + CACHE_BYTES // size))
    numbers = [random(subject.outputs, subject.depth, copy) for copy in copies]
    eight, four = ([_packed(one, kind) for one in numbers] for kind in ("blocks", "four-f16"))
    for count in TIMED:
        x_TD, stream_TF = random(count, subject.depth, 5), random(count, subject.outputs, 6)

        def taken(weights: Sequence[Weight], x_TD: Tensor = x_TD, stream_TF: Tensor = stream_TF) -> float:
            return _micros([partial(_served, subject, x_TD, stream_TF, one) for one in weights])

        found = {"bf16_us": taken(numbers), "fp8_us": taken(eight), "int4_us": taken(four)}
        floors = {"fp8_bytes_us": round(size / BANDWIDTH * 1e6, 1), "int4_bytes_us": round(size / BANDWIDTH * 5e5, 1)}
        yield {"product": subject.name, "rows": count, **found, **floors}


def layers(subjects: Sequence[Product], name: str) -> Iterator[Row]:
    """Microseconds of a layer's products, one behind the other, as a round of few rows has them; by rows."""
    random = partial(_random, device="cuda", dtype=torch.bfloat16)
    kind = {"fp8": "blocks", "int4": "four-even"}.get(name)
    numbers = [[random(one.outputs, one.depth, copy) for one in subjects] for copy in range(LAYERS)]
    weights: list[list[Weight]] = [[_packed(one, kind) if kind else one for one in row] for row in numbers]
    for count in (1, 8, 16, 32):
        squares_T = torch.zeros(count, dtype=torch.int64, device="cuda")
        beside = [(one, random(count, one.depth, 5), random(count, one.outputs, 6)) for one in subjects]
        steps = [
            partial(_served, *given, weight, squares_T)
            for row in weights
            for given, weight in zip(beside, row, strict=True)
        ]
        yield {"layer": name, "rows": count, "us": round(_micros(steps) * len(subjects), 2)}


def _served(
    subject: Product, x_TD: Tensor, stream_TF: Tensor, weight: Weight, squares_T: Tensor | None = None
) -> object:
    if subject.follows == "swiglu":
        return linear_gated(Normed(x_TD, torch.ones(len(x_TD), dtype=torch.int64, device="cuda")), weight, EPS)
    if subject.follows == "sum":
        return linear_added(x_TD, weight, stream_TF, stream_TF[0], EPS, keep=True, squares_T=squares_T)
    return linear(x_TD, weight)


def _micros(steps: Sequence[Callable[[], object]]) -> float:
    graphs = StepGraphs("cuda")

    def run() -> None:
        for step in steps:
            step()

    graphs.capture("steps", run, ())
    return round(replayed(lambda: graphs.replay("steps"), "cuda") / len(steps), 2)


def rounds(
    shape: TinyShape, buckets: list[int], name: str, device: str, beside: bool = True, activations: str = "auto"
) -> Iterator[Row]:
    """Times of captured verifies of one row and of sixteen for each sequence."""
    dtype, memory = ("float32", 1 << 29) if device == "cpu" else ("bfloat16", 60 << 30)
    widths, begin = (1, shape.block_size), time.perf_counter()
    settings = RigSettings(
        shape, device, dtype, max(buckets), widths, CONTEXT + 2304, memory, 64, changes=FORMATS[name],
        activations=activations, keep_widened=beside,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(settings, Path(folder))
        told = {"format": name, "activations": activations, "weight_gb": round(rig.pool.model.weight_bytes / 1e9, 2)}
        yield {**told, "built_s": round(time.perf_counter() - begin, 1)}
        for bucket in buckets:
            rig.seat(bucket, CONTEXT)
            plain, wide = (_verify_micros(rig, bucket, width) for width in widths)
            floor = rig.pool.model.weight_bytes / BANDWIDTH * 1e6
            found = {"plain_us": plain, f"verify_{widths[1]}_us": wide, "bytes_us": floor}
            yield {**told, "bucket": bucket, **{key: round(value) for key, value in found.items()}}


def _verify_micros(rig: Rig, bucket: int, width: int) -> float:
    key = rig.verify_key(bucket, width, CONTEXT)
    return rig.micros(lambda: rig.steps.graphs.replay(key))


if __name__ == "__main__":
    sys.exit(main())
