"""Rows of a product behind which attention makes its heads, and what two kernels make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from services.common.kernels.linear import Normed
from services.common.kernels.rope import Rotation
from services.common.kernels.span_attention import Span, plan_span
from services.common.kernels.span_attention.kernel import attend_span
from services.common.kernels.span_attention.types import Heads
from services.common.kernels.store_qkv.kernel import store_qkv
from tests.kernels.gpu.devices import DEVICE, randn

SIZE, WIDTH, EPS = 128, 2560, 1e-6
Attend = Callable[[Heads, Span], Tensor]


def heads_of(
    mixed: Normed, norm: Tensor | None, rotation: Rotation, kv: Tensor, span: Span, bias: Tensor | None, offset: float
) -> Heads:
    """What heads of a product are made of, whose rows were WIDTH wide."""
    turned, numbers = (rotation.cos_T1D, rotation.sin_T1D), (1.0 / WIDTH, EPS, offset)
    return Heads(mixed.rows_TD, mixed.squares_T, bias, norm, *turned, span.slots_T, kv, *numbers)


class Rows:
    """A product's rows of several sequences, and paged K/V; positions that no row sees before the span are NaN."""

    def __init__(
        self,
        attend: Attend,
        lengths: Sequence[int],
        width: int = 1,
        group: int = 4,
        kv_heads: int = 8,
        block: int = 16,
        columns: int = 0,
    ) -> None:
        """`attend` makes heads and attends in one kernel."""
        self.attend = attend
        count, heads = len(lengths), (group + 2) * kv_heads
        columns = columns or (max(lengths) + width) // block + 1
        order = torch.randperm(count * columns, generator=torch.Generator().manual_seed(count))
        table = order.view(count, columns).to(torch.int32) + 1
        self.kv = randn(2, count * columns + 1, block, kv_heads, SIZE, seed=1, dtype=torch.bfloat16)
        seen = torch.zeros(count * columns + 1, block, dtype=torch.bool)
        for own, length in zip(table.long(), lengths, strict=True):
            places = torch.arange(min(length, columns * block))
            seen[own[places // block], places % block] = True
        self.kv[:, ~seen.to(DEVICE)] = float("nan")
        self.table, self.lengths, self.width, self.block = table.to(DEVICE), lengths, width, block
        self.span = self.plan()
        self.mixed = Normed(
            3 * randn(count * width, heads * SIZE, seed=2, dtype=torch.bfloat16),
            torch.randint(1 << 35, 1 << 37, (count * width,), device=DEVICE),
        )
        self.norm = 1 + randn(heads - kv_heads, SIZE, seed=3, dtype=torch.bfloat16) / 5
        self.bias = randn(heads * SIZE, seed=4, dtype=torch.bfloat16)
        angles = 3 * randn(count * width, 1, SIZE // 2, seed=5)
        self.rotation = Rotation(torch.cat([angles.cos()] * 2, -1), torch.cat((-angles.sin(), angles.sin()), -1))

    def plan(self) -> Span:
        """Sequences come ranked by length, as the launch that seats a round ranks them."""
        lengths_B = torch.tensor(self.lengths, device=DEVICE)
        ranks = sorted(((number, length) for number, length in enumerate(self.lengths)), key=lambda pair: -pair[1])
        ranks_B2 = torch.tensor(ranks, dtype=torch.int32, device=DEVICE)
        return replace(plan_span(self.table, lengths_B, self.width, self.block), ranks_B2=ranks_B2)

    def results(self, norm: Tensor | None, bias: Tensor | None, offset: float) -> tuple[list[Tensor], list[Tensor]]:
        """Return output and K/V by two kernels, and by the one."""
        apart, made = self.kv.clone(), self.kv.clone()
        q_THD = store_qkv(self.mixed, norm, self.rotation, apart, self.span.slots_T, EPS, bias, offset, WIDTH)
        shape = self.span.positions_BW.shape
        expected = attend_span(q_THD.unflatten(0, shape), apart, self.span).flatten(0, 1)
        heads = heads_of(self.mixed, norm, self.rotation, made, self.span, bias, offset)
        found = self.attend(heads, self.span)
        return [expected, apart], [found, made]

    def check(self, norm: Tensor | None, bias: Tensor | None = None, offset: float = 0.0, pad: int = 0) -> None:
        """Block 0 is where rows without a place go, in any order, so it may differ where there is a `pad`."""
        expected, found = self.results(norm, bias, offset)
        expected[1], found[1] = expected[1][:, pad:], found[1][:, pad:]
        for one, other in zip(expected, found, strict=True):
            assert torch.equal(one.view(torch.int16), other.view(torch.int16)), self.lengths
        assert not found[0].isnan().any()
