"""A drafter's matrices in eight bits, as llm-compressor writes them: codes of a byte, and a scale for each line."""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

CODES, SCALE = "weight", "weight_scale"
MOST = 127
"""The largest code; the scale of a line is its largest number over this."""
_TARGET = r"layers\.\d+\.(self_attn|mlp)\.\w+_proj"
CONFIG: Mapping[str, object] = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "config_groups": {
        "group_0": {
            "targets": [f"re:{_TARGET}$"],
            "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True},
        }
    },
    "ignore": [],
}
"""What `quantization_config` says of it."""


def pack(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the products of layers as codes [F, D] with scales [F, 1] in float32; other tensors as they are."""
    packed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        module, _, end = name.rpartition(".")
        if end != CODES or not re.fullmatch(_TARGET, module):
            packed[name] = tensor
            continue
        scale_F1 = (tensor.float().abs().amax(1, keepdim=True) / MOST).clamp(min=1e-12)
        packed[name] = (tensor.float() / scale_F1).round().to(torch.int8)
        packed[f"{module}.{SCALE}"] = scale_F1
    return packed


def unpack(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what codes mean, without scales, rounded to bfloat16 as who serves rounds it; the others as they are."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        scale_F1 = tensors.get(f"{name.rpartition('.')[0]}.{SCALE}")
        if name.endswith(f".{SCALE}"):
            continue
        found[name] = tensor
        if tensor.dtype == torch.int8 and scale_F1 is not None:
            found[name] = (tensor.float() * scale_F1.float()).bfloat16()
    return found
