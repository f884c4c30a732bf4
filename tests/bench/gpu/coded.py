"""python -m tests.bench.gpu.coded: attention to keys and values in eight bits, and rounds of a target that keeps them.

First attention to codes is compared with attention to what they mean, over widths and lengths, NaN standing in all that
no row may see. Then captured rounds are timed beside those in bfloat16. One line a figure, the verdict last; exits
with 1 where a bit differs.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from services.common.kernels.kv_codes.reference import widened
from services.common.kernels.span_attention import Span, attend_span, kernel, plan_span
from tests.bench.gpu.results import tell, verdict
from tests.bench.gpu.rig import Rig, RigSettings
from tests.bench.gpu.shapes import SHAPES, TINY
from tests.support.tiny_checkpoints import TinyShape

Row = dict[str, Any]
BLOCK = 16
BANDWIDTH = 4.3e12
"""Bytes a second that a round can hope for."""
HEADS = ((32, 8, 128), (64, 8, 128), (16, 4, 256))
"""Heads of queries, those of keys and values, and their numbers."""
SPANS = ((1, (3, 700, 9000)), (4, (40, 1500)), (16, (17, 8191, 600)), (128, (0, 300)))
"""Rows of each sequence, and tokens that sequences have before."""
LONG = ((1, 512), (8, 512), (1, 32_000), (8, 32_000))
"""Sequences of a round, and their tokens."""


def main() -> int:
    """Compares, then times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["attention", "rounds"], help="attention, rounds")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="qwen3-8b")
    parser.add_argument("--tiny", action="store_true", help="a tiny model on a CPU")
    parser.add_argument(
        "--loads", type=_load, nargs="*", default=LONG, help="of rounds: sequences x tokens, as 1x128000"
    )
    chosen = parser.parse_args()
    shape, device = (TINY, "cpu") if chosen.tiny else (SHAPES[chosen.shape], "cuda")
    rows: list[Row] = []
    for heads, kv_heads, size in HEADS if "attention" in chosen.parts else ():
        rows.append(compared(heads, kv_heads, size, device))
        tell(rows[-1])
    for kv_dtype in ("auto", "int8") if "rounds" in chosen.parts else ():
        for row in rounds(shape, kv_dtype, device, chosen.loads):
            rows.append(row)
            tell(row)
        gc.collect()
        if not chosen.tiny:
            torch.cuda.empty_cache()
    return verdict(rows)


def compared(heads: int, kv_heads: int, size: int, device: str) -> Row:
    """Compare attention to codes with attention to the numbers that they mean, at every width and length of `SPANS`."""
    begin, dtype, differ = time.perf_counter(), torch.float64 if device == "cpu" else torch.bfloat16, []
    for width, lengths in SPANS if device == "cuda" else SPANS[1:2]:
        table, codes, exponents = _poisoned(width, lengths, kv_heads, size, device)
        kv_2NSHD = torch.stack([widened(*part, dtype) for part in zip(codes, exponents, strict=True)])
        generator = torch.Generator(device).manual_seed(width)
        q_BWHD = torch.randn((len(lengths), width, heads, size), generator=generator, device=device, dtype=dtype)
        span = plan_span(table, torch.tensor(lengths, device=device), width, BLOCK)
        by_codes = attend_span(q_BWHD, codes, span, None, exponents)
        others = {"as served": attend_span(q_BWHD, kv_2NSHD, span), "by Triton": _by_triton(q_BWHD, kv_2NSHD, span)}
        unequal = [name for name, other in others.items() if not torch.equal(by_codes, other)]
        finite = bool(by_codes.isfinite().all())
        differ += [(width, unequal, finite)] if unequal or not finite else []
    seconds = round(time.perf_counter() - begin, 1)
    return {"heads": heads, "size": size, "compared": len(SPANS), "differ": differ, "s": seconds}


def _by_triton(q_BWHD: Tensor, kv_2NSHD: Tensor, span: Span) -> Tensor:
    """Attend without the kernel in CUDA C++."""
    with patch.object(kernel, "tiles_of", lambda *_: None):
        return attend_span(q_BWHD, kv_2NSHD, span)


def _poisoned(
    width: int, lengths: tuple[int, ...], kv_heads: int, size: int, device: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Tables of blocks in no order, codes, and exponents that mean NaN wherever no row sees."""
    counts = [-(-(length + width) // BLOCK) for length in lengths]
    order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(1)) + 1
    table = torch.zeros((len(lengths), max(counts)), dtype=torch.int32)
    generator = torch.Generator().manual_seed(2)
    shape = (2, sum(counts) + 1, BLOCK, kv_heads, size)
    codes = torch.randint(-127, 128, shape, generator=generator, dtype=torch.int8)
    exponents = torch.full(shape[:-1], 127, dtype=torch.int8)
    for row, (length, blocks) in enumerate(zip(lengths, order.split(counts), strict=True)):
        table[row, : len(blocks)] = blocks
        seen = torch.arange(length + width)
        drawn = torch.randint(-11, -5, (2, len(seen), kv_heads), generator=generator, dtype=torch.int8)
        exponents[:, blocks[seen // BLOCK], seen % BLOCK] = drawn
    return table.to(device), codes.to(device), exponents.to(device)


def _load(text: str) -> tuple[int, int]:
    count, tokens = map(int, text.split("x"))
    return count, tokens


def rounds(shape: TinyShape, kv_dtype: str, device: str, listed: Sequence[tuple[int, int]] = LONG) -> Iterator[Row]:
    """Times of captured verifies of one row and of the widest for each sequence."""
    on_cpu = device == "cpu"
    dtype, memory = ("float32", 1 << 29) if on_cpu else ("bfloat16", 80 << 30)
    loads = tuple((min(count, 2), 64) for count, _ in listed[:2]) if on_cpu else listed
    widths, begin = (1, shape.block_size), time.perf_counter()
    context, slots = max(tokens for _, tokens in loads) + 2304, max(count for count, _ in loads)
    shape = replace(shape, context=max(shape.context, context))  # positions that a model may not have: times are alike
    settings = RigSettings(shape, device, dtype, slots, widths, context, memory, 64, kv_dtype=kv_dtype)
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(settings, Path(folder))
        per_token = rig.worker.budget.terms.per_token["target_kv"]
        told = {"kv_dtype": kv_dtype, "bytes_a_token": per_token}
        yield {**told, "blocks": rig.worker.budget.blocks, "built_s": round(time.perf_counter() - begin, 1)}
        for count, tokens in loads:
            rig.seat(count, tokens)
            plain, wide = (_micros(rig, count, width, tokens) for width in widths)
            floor = (rig.pool.model.weight_bytes + count * tokens * per_token) / BANDWIDTH * 1e6
            found = {"plain_us": plain, f"verify_{widths[1]}_us": wide, "bytes_us": floor}
            yield {
                **told,
                "sequences": count,
                "tokens": tokens,
                **{name: round(value) for name, value in found.items()},
            }


def _micros(rig: Rig, bucket: int, width: int, context: int) -> float:
    key = rig.verify_key(bucket, width, context)
    return rig.micros(lambda: rig.steps.graphs.replay(key))


if __name__ == "__main__":
    sys.exit(main())
