"""Attention begins while the kernel in front of it drains: it must not read what that kernel has yet to write.

The kernel in front lets attention start at once and writes late, as one does whose process lost the GPU meanwhile.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

from dataclasses import replace

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL, allow_next, await_previous
from services.common.kernels.span_attention import attend_span, plan_span
from services.common.kernels.span_attention.span import Span

BLOCK, KV_HEADS, GROUP, SIZE = 16, 8, 4, 128
LATE_NS = 300_000


@triton.jit
def late_kernel(from_ptr, to_ptr, count, late_ns, TILE: tl.constexpr, PDL: tl.constexpr):  # noqa: ANN001, ANN201
    """Copy numbers, so many nanoseconds after the next kernel was let in."""
    allow_next(PDL)
    await_previous(PDL)
    begin = tl.extra.cuda.globaltimer()
    now = begin
    while now - begin < late_ns:
        now = tl.extra.cuda.globaltimer()
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = at < count
    tl.store(to_ptr + at, tl.load(from_ptr + at, mask=inside), mask=inside)


def attended(kv: Tensor, q_BWHD: Tensor, span: Span, late: bool) -> Tensor:
    """The result over K/V that is all there, or comes late over other numbers."""
    if not late:
        return attend_span(q_BWHD, kv, span)
    held = torch.empty_like(kv)
    for late_ns in (0, LATE_NS):  # compiled first
        held.fill_(7.0)
        late_kernel[(triton.cdiv(kv.numel(), 8192),)](kv, held, kv.numel(), late_ns, TILE=8192, PDL=PDL, **LAUNCH)
        out = attend_span(q_BWHD, held, span)
    torch.cuda.synchronize()
    return out


def segments(count: int, width: int, begin: int) -> tuple[Span, Tensor, Tensor]:
    """So many segments of one prompt, which begins at a position; random queries, keys and values."""
    generator = torch.Generator("cuda").manual_seed(count * 100 + width + begin)
    blocks = -(-(begin + count * width) // BLOCK)
    kv = torch.randn(2, blocks + 1, BLOCK, KV_HEADS, SIZE, device="cuda", dtype=torch.bfloat16, generator=generator)
    table_BN = torch.arange(1, blocks + 1, dtype=torch.int32, device="cuda").expand(count, -1).contiguous()
    starts_B = begin + width * torch.arange(count, device="cuda")
    q_BWHD = torch.randn(count, width, KV_HEADS * GROUP, SIZE, device="cuda", dtype=torch.bfloat16, generator=generator)
    return plan_span(table_BN, starts_B, width, BLOCK), q_BWHD, kv


@pytest.mark.parametrize("begin", [0, 192])
@pytest.mark.parametrize(("count", "width"), [(2, 64), (4, 64), (8, 64), (24, 64), (8, 4), (32, 4), (64, 2)])
def test_segments_of_one_prompt_read_what_the_earlier_ones_write_in_the_same_forward(
    count: int, width: int, begin: int
) -> None:
    span, q_BWHD, kv = segments(count, width, begin)
    for each in (span, replace(span, short=True)):
        assert torch.equal(attended(kv, q_BWHD, each, late=True), attended(kv, q_BWHD, each, late=False))


@pytest.mark.parametrize(("count", "width"), [(2, 64), (4, 64), (32, 4)])
def test_the_kernel_in_front_is_late_enough_to_be_noticed(count: int, width: int) -> None:
    span, q_BWHD, kv = segments(count, width, 192)
    early = replace(span, side_by_side=False)
    assert not torch.equal(attended(kv, q_BWHD, early, late=True), attended(kv, q_BWHD, early, late=False))
