"""One layer of Gated DeltaNet on a device, with random constants, and what the token loop says of its rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from services.common.kernels.gated_delta import DeltaConstants, DeltaSpan, next_folded, ring_rows
from services.common.kernels.gated_delta.cut import Cut
from services.common.kernels.gated_delta.kernel import delta_rows
from services.common.kernels.gated_delta.reference import gated_delta as token_loop
from tests.kernels.gpu.devices import DEVICE

EPS, NAN = 1e-6, float("nan")


@dataclass(frozen=True)
class Shape:
    """Of a layer, and the widest round."""

    k_heads: int
    heads: int
    k_dim: int
    v_dim: int
    widest: int
    taps: int = 4

    @property
    def channels(self) -> int:
        return 2 * self.k_heads * self.k_dim + self.heads * self.v_dim

    @property
    def kept(self) -> int:
        return self.channels + 2 * self.heads

    @property
    def features(self) -> int:
        return self.kept + self.heads * self.v_dim


TINY = Shape(1, 2, 64, 32, 4)
QWEN = Shape(16, 32, 128, 128, 16)
"""Qwen3.5-4B's."""


def numbers(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Layer:
    """One layer's constants, and states and rings of some slots that are NaN where nothing was written."""

    def __init__(self, shape: Shape, dtype: torch.dtype, slots: int = 3) -> None:
        self.shape, self.dtype, self.ring = shape, dtype, ring_rows(shape.widest, shape.taps)
        conv_KC = numbers(shape.taps, shape.channels, seed=1)
        decay_H, bias_H = -0.3 * numbers(shape.heads, seed=2).abs(), numbers(shape.heads, seed=3)
        self.norm_V = (1 + 0.1 * numbers(shape.v_dim, seed=4)).to(dtype)
        self._norm_V = self.norm_V.to(DEVICE)
        self.exact = DeltaConstants(conv_KC.t().double(), decay_H.double(), bias_H.double(), shape.k_heads, shape.k_dim)
        on = [x.to(DEVICE) for x in (conv_KC, decay_H, bias_H)]
        self.constants = DeltaConstants(on[0].t(), on[1], on[2], shape.k_heads, shape.k_dim)
        size = (slots, shape.heads, shape.k_dim, shape.v_dim)
        self.state_SHKV = torch.full(size, NAN, device=DEVICE)
        self.ring_SRC = torch.full((slots, self.ring, shape.kept), NAN, dtype=dtype, device=DEVICE)
        self.folded_S = torch.zeros(slots, dtype=torch.int64, device=DEVICE)

    def rows(self, count: int, seed: int = 7) -> Tensor:
        return numbers(count, self.shape.features, seed=seed).to(self.dtype).to(DEVICE)

    def run(
        self,
        slots: list[int],
        lengths: list[int],
        rows_BWF: Tensor,
        valid: list[int] | None = None,
        cut: Cut | None = None,
    ) -> Tensor:
        """Runs a span of each slot and folds."""
        span = self.span(slots, lengths, rows_BWF.shape[1], valid)
        if DEVICE == "cuda":
            torch.cuda.synchronize()  # kernels read where a span lies before they wait for the one before
        out_TF = self.take(span, rows_BWF, cut)
        self.folded_S[span.slots_B] = next_folded(span)
        return out_TF

    def span(self, slots: list[int], lengths: list[int], width: int, valid: list[int] | None = None) -> DeltaSpan:
        """Where spans of slots lie."""
        slots_B, lengths_B = torch.tensor(slots, device=DEVICE), torch.tensor(lengths, device=DEVICE)
        valid_B = None if valid is None else torch.tensor(valid, device=DEVICE)
        return DeltaSpan(slots_B, lengths_B, self.folded_S[slots_B], valid_B, width, self.ring, self.shape.taps)

    def take(self, span: DeltaSpan, rows_BWF: Tensor, cut: Cut | None = None) -> Tensor:
        """Runs a span, and tells no one what was folded."""
        flat_TF, constants = rows_BWF.flatten(0, 1), self.constants
        out_TF = delta_rows(flat_TF, constants, self._norm_V, EPS, span, self.state_SHKV, self.ring_SRC, cut=cut)
        return out_TF.view(*rows_BWF.shape[:2], -1)

    def expected(self, rows_TF: Tensor) -> tuple[Tensor, Tensor]:
        """What rows read of the token loop, normed and gated, and the state after each."""
        rows_TF = rows_TF.cpu().double()
        read_THV, states_THKV = token_loop(rows_TF[:, : self.shape.kept], self.exact, self.shape.v_dim)
        normed_THV = read_THV * (read_THV.square().mean(-1, keepdim=True) + EPS).rsqrt() * self.norm_V.double()
        return normed_THV.flatten(1) * F.silu(rows_TF[:, self.shape.kept :]), states_THKV


def away(found: Tensor, exact: Tensor) -> float:
    return float((found.cpu().double() - exact).abs().max() / exact.abs().max())


def padded(rows_TF: Tensor, width: int) -> Tensor:
    """Return rows with NaN behind them, up to so many."""
    return torch.cat((rows_TF, torch.full_like(rows_TF[:1], NAN).expand(width - len(rows_TF), -1)))
