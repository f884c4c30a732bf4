"""The Qwen3 block that targets and drafters share: its weights, fused at load, and its arithmetic."""

from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.kernels.linear import Normed, linear_added, linear_gated
from services.common.kernels.rope import Frequencies, Rotation, RotationTable
from services.common.kernels.store_qkv import project_qkv
from services.common.model.checkpoint import TensorSource
from services.common.model.config import BackboneConfig


@dataclass(frozen=True)
class LayerWeights:
    """One block; `qkv` and `gate_up` are concatenated along their outputs, head norms are repeated per head."""

    input_norm_D: Tensor
    qkv_FD: Tensor
    head_norm_HD: Tensor
    o_DF: Tensor
    post_norm_D: Tensor
    gate_up_FD: Tensor
    down_DF: Tensor


def layer_shapes(config: BackboneConfig, prefix: str) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every tensor of the block called `prefix`, in the Hugging Face layout."""
    width, inner, head = config.hidden_size, config.intermediate_size, config.head_dim
    queries, keys = config.num_attention_heads * head, config.num_key_value_heads * head
    return {
        f"{prefix}.input_layernorm.weight": (width,),
        f"{prefix}.post_attention_layernorm.weight": (width,),
        f"{prefix}.self_attn.q_proj.weight": (queries, width),
        f"{prefix}.self_attn.k_proj.weight": (keys, width),
        f"{prefix}.self_attn.v_proj.weight": (keys, width),
        f"{prefix}.self_attn.o_proj.weight": (width, queries),
        f"{prefix}.self_attn.q_norm.weight": (head,),
        f"{prefix}.self_attn.k_norm.weight": (head,),
        f"{prefix}.mlp.gate_proj.weight": (inner, width),
        f"{prefix}.mlp.up_proj.weight": (inner, width),
        f"{prefix}.mlp.down_proj.weight": (width, inner),
    }


def read_layer(
    checkpoint: TensorSource, config: BackboneConfig, prefix: str, dtype: torch.dtype, device: torch.device
) -> LayerWeights:
    """Read one block.

    Raises:
        ModelError: a tensor is missing, mis-shaped or not finite.
    """
    tensors = {
        name.removeprefix(f"{prefix}.").removesuffix(".weight"): checkpoint.read(name, shape, dtype)
        for name, shape in layer_shapes(config, prefix).items()
    }
    attention = [tensors[f"self_attn.{name}_proj"] for name in "qkv"]
    norms = [
        tensors["self_attn.q_norm"].expand(config.num_attention_heads, -1),
        tensors["self_attn.k_norm"].expand(config.num_key_value_heads, -1),
    ]
    return LayerWeights(
        input_norm_D=tensors["input_layernorm"].to(device),
        qkv_FD=torch.cat(attention).to(device),
        head_norm_HD=torch.cat(norms).to(device),
        o_DF=tensors["self_attn.o_proj"].to(device),
        post_norm_D=tensors["post_attention_layernorm"].to(device),
        gate_up_FD=torch.cat((tensors["mlp.gate_proj"], tensors["mlp.up_proj"])).to(device),
        down_DF=tensors["mlp.down_proj"].to(device),
    )


def rotation_table(config: BackboneConfig, positions: int, dtype: torch.dtype, device: torch.device) -> RotationTable:
    """Return the rotary tables of a model for `positions`; never narrower than float32."""
    wide = dtype if dtype == torch.float64 else torch.float32
    frequencies = Frequencies.of(config.head_dim, config.rope_theta, config.rope_scaling, wide)
    return RotationTable(positions, frequencies, wide, device)


def store_projected(
    normed: Normed, layer: LayerWeights, rotation: Rotation, kv_2NSHD: Tensor, slots_T: Tensor, eps: float
) -> Tensor:
    """Return the queries [T, heads, D]; keys and values go to their slots."""
    return project_qkv(normed, layer.qkv_FD, layer.head_norm_HD, rotation, kv_2NSHD, slots_T, eps)


def finish_block(
    attended_TF: Tensor, stream_TD: Tensor, layer: LayerWeights, next_norm_D: Tensor, eps: float, keep: bool = False
) -> tuple[Normed, Tensor]:
    """Apply the output projection and the feed-forward half; return the next block's norm of the stream, and it.

    The stream handed in is not to be read afterwards unless `keep`.
    """
    normed, stream_TD = linear_added(attended_TF, layer.o_DF, stream_TD, layer.post_norm_D, eps, keep)
    inner_TI = linear_gated(normed, layer.gate_up_FD, eps)
    return linear_added(inner_TI, layer.down_DF, stream_TD, next_norm_D, eps)
