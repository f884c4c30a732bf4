"""The block that targets and drafters share: its arithmetic by kernels."""

import torch
from torch import Tensor

from services.common.kernels.linear import Normed, linear_added, linear_gated
from services.common.kernels.rope import Frequencies, Rotation, RotationTable
from services.common.kernels.store_qkv import project_qkv
from services.common.model.spec import StackSpec
from services.common.model.weights import LayerWeights


def rotation_table(spec: StackSpec, positions: int, dtype: torch.dtype, device: torch.device) -> RotationTable:
    """Return the rotary tables of a model for `positions`; never narrower than float32."""
    wide = dtype if dtype == torch.float64 else torch.float32
    attention, rope = spec.attention, spec.attention.rope
    frequencies = Frequencies.of(attention.head_dim, rope.theta, rope.scaling, wide)
    return RotationTable(positions, frequencies, wide, device)


def store_projected(
    normed: Normed, layer: LayerWeights, rotation: Rotation, kv_2NSHD: Tensor, slots_T: Tensor, spec: StackSpec
) -> Tensor:
    """Return the queries [T, heads, D]; keys and values go to their slots."""
    mixer, eps, offset = layer.mixer, spec.norm_eps, spec.norm_offset
    return project_qkv(normed, mixer.qkv_FD, mixer.head_norm_HD, rotation, kv_2NSHD, slots_T, eps, mixer.bias_F, offset)


def finish_block(
    attended_TF: Tensor,
    stream_TD: Tensor,
    layer: LayerWeights,
    next_norm_D: Tensor,
    spec: StackSpec,
    keep: bool = False,
) -> tuple[Normed, Tensor]:
    """Apply the output projection and the feed-forward half; return the next block's norm of the stream, and it.

    The stream handed in is not to be read afterwards unless `keep`.
    """
    eps, offset = spec.norm_eps, spec.norm_offset
    normed, stream_TD = linear_added(attended_TF, layer.mixer.o_DF, stream_TD, layer.post_norm_D, eps, keep, offset)
    inner_TI = linear_gated(normed, layer.ffn.gate_up_FD, eps)
    return linear_added(inner_TI, layer.ffn.down_DF, stream_TD, next_norm_D, eps, offset=offset)
