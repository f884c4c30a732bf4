"""The recurrent mixer of hybrids, Gated DeltaNet; its state dict is Hugging Face's layout."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.training.delta_rule import CHUNK, in_chunks, one_row
from models.training.network import RMSNorm, Span, fold
from models.training.settings import Shape

Heads = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
DECAY, STEPS = (1.0, 16.0), (1e-3, 1e-1)
"""Rates and step sizes that training starts from: heads forget within some ten to some thousand tokens."""


class GatedDelta(nn.Module):
    """Convolution, the gated delta rule, and a norm whose output is gated."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        assert shape.delta is not None, "a hybrid's shape"
        self.delta = delta = shape.delta
        width, values = shape.hidden_size, delta.v_heads * delta.v_dim
        self.in_proj_qkv = nn.Linear(width, delta.channels, bias=False)
        self.in_proj_z = nn.Linear(width, values, bias=False)
        self.in_proj_b = nn.Linear(width, delta.v_heads, bias=False)
        self.in_proj_a = nn.Linear(width, delta.v_heads, bias=False)
        self.conv1d = nn.Conv1d(delta.channels, delta.channels, delta.taps, groups=delta.channels, bias=False)
        self.A_log = nn.Parameter(torch.empty(delta.v_heads).uniform_(*DECAY).log())
        steps = torch.empty(delta.v_heads).uniform_(*map(math.log, STEPS)).exp()
        self.dt_bias = nn.Parameter(steps.expm1().log())
        self.norm = RMSNorm(delta.v_dim, shape.rms_norm_eps)
        self.out_proj = nn.Linear(values, width, bias=False)

    def forward(self, x: Tensor, span: Span) -> Tensor:
        """Return the update [batch, rows, width] of whole sequences."""
        cache = self.new_cache(x, len(x), 0)
        return self.step(x, span, cache)

    def new_cache(self, like: Tensor, batch: int, length: int) -> tuple[Tensor, Tensor]:
        """Return zeroed: the rows that the convolution still needs, and the state, float32; any length fits."""
        delta = self.delta
        tail = like.new_zeros(batch, delta.taps - 1, delta.channels)
        return tail, like.new_zeros(batch * delta.v_heads, delta.k_dim, delta.v_dim, dtype=torch.float32)

    def step(self, x: Tensor, span: Span, cache: tuple[Tensor, Tensor]) -> Tensor:
        """Return the update of rows that follow those in the cache, and move it unless a gradient is wanted."""
        (tail, state), rows = cache, x.shape[1]
        mixed = torch.cat((tail, self.in_proj_qkv(x)), 1)
        z, b, a = self.in_proj_z(x), self.in_proj_b(x), self.in_proj_a(x)
        with torch.autocast(x.device.type, enabled=False):
            heads = self._heads(mixed.float(), b.float(), a.float())
            if rows == 1:
                out = one_row(*heads, state)
            else:
                q, k, v, beta, g = (_chunks(part) for part in heads)
                out, after = in_chunks(q, k, v, beta, g, state)
                out = out.flatten(1, 2)[:, :rows]
                if not torch.is_grad_enabled():
                    state.copy_(after)
            if not torch.is_grad_enabled():
                tail.copy_(mixed[:, rows:])
            out = fold(out, 0, self.delta.v_heads).transpose(1, 2)
            out = self.norm(out) * F.silu(fold(z.float(), -1, self.delta.v_dim))
        update: Tensor = self.out_proj(out.flatten(-2).to(x.dtype))
        return update

    def _heads(self, mixed: Tensor, b: Tensor, a: Tensor) -> Heads:
        """Return queries, keys, values, beta and log decay of every head of values, [batch * heads, rows, ...]."""
        delta, rows, taps = self.delta, b.shape[1], self.conv1d.weight[:, 0].float()
        windows = torch.stack([mixed[:, tap : tap + rows] for tap in range(delta.taps)], -1)
        channels = F.silu((windows * taps).sum(-1))
        keys, group = delta.k_heads * delta.k_dim, delta.v_heads // delta.k_heads
        q, k, v = torch.split(channels, [keys, keys, channels.shape[-1] - 2 * keys], -1)
        q, k = (_unit(fold(part, -1, delta.k_dim)).repeat_interleave(group, 2) for part in (q, k))
        g = -self.A_log.float().exp() * F.softplus(a + self.dt_bias.float())
        parts = (q * delta.k_dim**-0.5, k, fold(v, -1, delta.v_dim), b.sigmoid(), g)
        first, second, third, beta, decay = (part.transpose(1, 2).flatten(0, 1) for part in parts)
        return first, second, third, beta, decay


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)


def _chunks(x: Tensor) -> Tensor:
    """Cut rows [Z, T, ...] into chunks; rows of zeros, which change no state, fill the last."""
    missing = -x.shape[1] % CHUNK
    padded = torch.cat((x, x.new_zeros(len(x), missing, *x.shape[2:])), 1) if missing else x
    return fold(padded, 1, CHUNK)
