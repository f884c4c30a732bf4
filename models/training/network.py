"""The Qwen3 building blocks that the target and the drafter share."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.training.settings import Shape

Rotation = tuple[Tensor, Tensor]


class RMSNorm(nn.Module):
    """Root-mean-square norm, computed in float32."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (self.weight * wide).to(x.dtype)


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the update of the residual stream."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Projections(nn.Module):
    """The attention weights; how rows meet is the caller's business."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        self.groups = shape.num_heads // shape.num_kv_heads
        queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, queries, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, keys, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(queries, shape.hidden_size, bias=False)
        self.q_norm = RMSNorm(shape.head_dim, shape.rms_norm_eps)
        self.k_norm = RMSNorm(shape.head_dim, shape.rms_norm_eps)

    def queries(self, x: Tensor, rotation: Rotation) -> Tensor:
        """Return [batch, heads, rows, head_dim]."""
        q = fold(self.q_proj(x), -1, self.head_dim).transpose(1, 2)
        return rotate(self.q_norm(q), rotation)

    def keys_values(self, x: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """Return keys and values, each [batch, kv_heads, rows, head_dim]."""
        k = fold(self.k_proj(x), -1, self.head_dim).transpose(1, 2)
        v = fold(self.v_proj(x), -1, self.head_dim).transpose(1, 2)
        return rotate(self.k_norm(k), rotation), v

    def attend_causal(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the causal attention output [batch, rows, hidden] of a whole sequence."""
        k = k.repeat_interleave(self.groups, dim=1)
        v = v.repeat_interleave(self.groups, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed: Tensor = self.o_proj(out.transpose(1, 2).flatten(-2))
        return mixed

    def attend_cached(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Attend without copying the keys: the heads of a group become query rows."""
        rows = q.shape[2]
        q = fold(q, 1, self.groups).flatten(2, 3)
        mask = None if mask is None else mask.repeat(self.groups, 1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        out = fold(out, 2, rows).flatten(1, 2)
        mixed: Tensor = self.o_proj(out.transpose(1, 2).flatten(-2))
        return mixed


class Layer(nn.Module):
    """The weights of one pre-norm block; its owner runs it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn = Projections(shape)
        self.mlp = FeedForward(shape)
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)


def fold(x: Tensor, dim: int, size: int) -> Tensor:
    """Split a dimension into groups of the given size."""
    shape = list(x.shape)
    shape[dim : dim + 1 or None] = [shape[dim] // size, size]
    return x.reshape(shape)


def rotation_at(positions: Tensor, shape: Shape) -> Rotation:
    """Return the cosines and sines [..., 1, rows, head_dim] of the given positions [..., rows]."""
    exponents = torch.arange(0, shape.head_dim, 2, device=positions.device) / shape.head_dim
    angles = positions[..., None].float() / shape.rope_theta ** exponents.float()
    angles = torch.cat((angles, angles), dim=-1).unsqueeze(-3)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Apply the rotary embedding, halves convention."""
    cos, sin = rotation
    left, right = x.float().chunk(2, dim=-1)
    return (x * cos + torch.cat((-right, left), dim=-1) * sin).to(x.dtype)


def init_weights(module: nn.Module, std: float = 0.02) -> None:
    """Draw every matrix from a normal distribution; norms stay at one."""
    for weight in module.parameters():
        if weight.dim() == 2:
            nn.init.normal_(weight, std=std)


def round_weights(module: nn.Module) -> None:
    """Round every weight to bfloat16, the precision in which it is published."""
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(weight.bfloat16().float())
