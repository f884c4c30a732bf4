"""Weights of a recurrent layer as its mixer takes them, and how they are read in Hugging Face's common layout."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.model.spec import Delta

_INTO = ("in_proj_qkv", "in_proj_b", "in_proj_a", "in_proj_z")


@dataclass(frozen=True)
class DeltaWeights:
    """`into_FD` makes what a sequence keeps of a row, which are queries, keys, values and two gates, and then z.

    The decay's rate, below zero, its bias and the convolution [C, taps] are in the state's type. The convolution's
    channels lie side by side, as they are read.
    """

    into_FD: Tensor
    conv_CK: Tensor
    decay_H: Tensor
    bias_H: Tensor
    norm_V: Tensor
    o_DF: Tensor


def state_type(dtype: torch.dtype) -> torch.dtype:
    """Return the type of states and of their arithmetic: float32, but float64 for a model of that type."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def delta_shapes(delta: Delta, hidden: int) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every tensor of the mixer."""
    values = delta.v_heads * delta.v_dim
    return {
        "in_proj_qkv.weight": (delta.channels, hidden),
        "in_proj_z.weight": (values, hidden),
        "in_proj_b.weight": (delta.v_heads, hidden),
        "in_proj_a.weight": (delta.v_heads, hidden),
        "conv1d.weight": (delta.channels, 1, delta.taps),
        "A_log": (delta.v_heads,),
        "dt_bias": (delta.v_heads,),
        "norm.weight": (delta.v_dim,),
        "out_proj.weight": (hidden, values),
    }


def read_delta(delta: Delta, read: Callable[..., Tensor], dtype: torch.dtype) -> DeltaWeights:
    """Read the mixer by `read`, which takes names in a block and the type that they are wanted in.

    Raises:
        ModelError: a tensor is missing, mis-shaped or not finite.
    """
    wide = state_type(dtype)
    return DeltaWeights(
        into_FD=read(*(f"linear_attn.{name}.weight" for name in _INTO)),
        conv_CK=_side_by_side(read("linear_attn.conv1d.weight").view(delta.channels, delta.taps).to(wide)),
        decay_H=-read("linear_attn.A_log", wide=wide).exp(),
        bias_H=read("linear_attn.dt_bias", wide=wide),
        norm_V=read("linear_attn.norm.weight"),
        o_DF=read("linear_attn.out_proj.weight"),
    )


def _side_by_side(conv_CK: Tensor) -> Tensor:
    return conv_CK.t().contiguous().t()
