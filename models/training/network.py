"""The Qwen3 building blocks that targets and the drafter share."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.training.settings import Shape

Rotation = tuple[Tensor, Tensor]


class Span(NamedTuple):
    """Rows [start, end) of sequences: where they stand, and which positions each sees; None is all before the end."""

    start: int
    end: int
    rotation: Rotation
    visible: Tensor | None


class RMSNorm(nn.Module):
    """Root-mean-square norm, computed in float32; hybrids store its weights with 1 taken off."""

    def __init__(self, width: int, eps: float, offset: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,), 1.0 - offset))
        self.eps, self.offset = eps, offset

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return ((self.weight + self.offset if self.offset else self.weight) * wide).to(x.dtype)


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
    """The attention weights; how rows meet is the caller's business. `lines` are the outputs of a head of queries.

    Rows are as wide as the model, or `inputs` times as wide.
    """

    def __init__(self, shape: Shape, lines: int = 1, inputs: int = 1) -> None:
        super().__init__()
        width = inputs * shape.hidden_size
        self.head_dim = shape.head_dim
        self.groups = shape.num_heads // shape.num_kv_heads
        queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        self.q_proj = nn.Linear(width, lines * queries, bias=False)
        self.k_proj = nn.Linear(width, keys, bias=False)
        self.v_proj = nn.Linear(width, keys, bias=False)
        self.o_proj = nn.Linear(queries, shape.hidden_size, bias=False)
        self.q_norm = RMSNorm(shape.head_dim, shape.rms_norm_eps, shape.norm_offset)
        self.k_norm = RMSNorm(shape.head_dim, shape.rms_norm_eps, shape.norm_offset)

    def queries(self, x: Tensor, rotation: Rotation) -> Tensor:
        """Return [batch, heads, rows, head_dim]."""
        q = fold(self.q_proj(x), -1, self.head_dim).transpose(1, 2)
        return rotate(self.q_norm(q), rotation)

    def keys_values(self, x: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """Return keys and values, each [batch, kv_heads, rows, head_dim]."""
        k = fold(self.k_proj(x), -1, self.head_dim).transpose(1, 2)
        v = fold(self.v_proj(x), -1, self.head_dim).transpose(1, 2)
        return rotate(self.k_norm(k), rotation), v


class Layer(nn.Module):
    """The weights of one pre-norm block but for its mixer; its owner runs it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.mlp = FeedForward(shape)
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps, shape.norm_offset)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps, shape.norm_offset)


def fold(x: Tensor, dim: int, size: int) -> Tensor:
    """Split a dimension into groups of the given size."""
    shape = list(x.shape)
    shape[dim : dim + 1 or None] = [shape[dim] // size, size]
    return x.reshape(shape)


def rotation_at(positions: Tensor, shape: Shape) -> Rotation:
    """Return the cosines and sines [..., 1, rows, turning] of the given positions [..., rows]."""
    exponents = torch.arange(0, shape.turning, 2, device=positions.device) / shape.turning
    angles = positions[..., None].float() / shape.rope_theta ** exponents.float()
    angles = torch.cat((angles, angles), dim=-1).unsqueeze(-3)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Apply the rotary embedding, halves convention, to the first channels of every head."""
    cos, sin = rotation
    turning, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    left, right = turning.float().chunk(2, dim=-1)
    turned = (turning * cos + torch.cat((-right, left), dim=-1) * sin).to(x.dtype)
    return torch.cat((turned, rest), dim=-1) if rest.shape[-1] else turned


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
