"""What a kernel is asked that takes rounds of many sequences from the product to attention's end."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest
import torch

from services.common.kernels.linear import Normed
from services.common.kernels.rope import Rotation
from services.common.kernels.span_attention import Mask, Span, plan_span

KV_HEADS, GROUP, SIZE, WIDTH = 8, 4, 128, 2560
LINES = (GROUP + 2) * KV_HEADS * SIZE


class ServedRound:
    """A round on a CPU whose tensors are said to be a GPU's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kernel: ModuleType) -> None:
        monkeypatch.setattr(kernel, "tiles_fit", lambda kv_2NSHD, span: span.mask.is_open)
        monkeypatch.setattr(kernel, "_usable", lambda *_: True)
        self.kernel = kernel
        self.normed = Normed(torch.zeros(1, WIDTH, dtype=torch.bfloat16))
        self.rotation = Rotation(torch.zeros(1, 1, SIZE), torch.zeros(1, 1, SIZE))
        self.kv_2NSHD = torch.empty(2, 4, 16, KV_HEADS, SIZE, dtype=torch.bfloat16, device="meta")

    def plan(self, batch: int, width: int = 1, mask: Mask | None = None) -> Span:
        table, lengths = torch.ones(batch, 3, dtype=torch.int32), torch.full((batch,), 20)
        ranks_B2 = torch.zeros(batch, 2, dtype=torch.int32)
        return replace(plan_span(table, lengths, width, 16, mask=mask or Mask()), ranks_B2=ranks_B2)

    def serves(self, span: Span, group: int = GROUP, rotation: Rotation | None = None) -> bool:
        lines = (group + 2) * KV_HEADS * SIZE
        qkv_FD = torch.empty(lines, WIDTH, dtype=torch.bfloat16, device="meta")
        return bool(self.kernel.serves(self.normed, qkv_FD, None, rotation or self.rotation, self.kv_2NSHD, span, None))
