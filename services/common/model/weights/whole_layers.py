"""Layers whose products are by the whole numbers of the file, and whose rows are rounded to eight bits."""

from dataclasses import replace

import torch
from torch import Tensor

from services.common.kernels.linear.int8_weight import Int8Weight
from services.common.model.fields.errors import ModelError
from services.common.model.files.checkpoint import TensorSource
from services.common.model.files.widened import NOT_WHOLE, WidenedCheckpoint
from services.common.model.spec import Attention, Dense, LayerSpec, ModelSpec
from services.common.model.weights.ffn_weights import DenseWeights
from services.common.model.weights.fold import halves_apart
from services.common.model.weights.weights import LayerWeights, ModelWeights, layer_prefix, layer_shapes


def with_whole_numbers(
    spec: ModelSpec, checkpoint: TensorSource, weights: ModelWeights, dtype: torch.dtype
) -> ModelWeights:
    """Return a dense model's weights with those of its blocks' products as the file has them.

    Raises:
        ModelError: the file has others, or the model has other parts.
    """
    if not isinstance(checkpoint, WidenedCheckpoint):
        raise ModelError(f"{checkpoint.folder}: {NOT_WHOLE}")
    layers = zip(spec.layers, weights.layers, strict=True)
    return replace(
        weights,
        layers=tuple(
            _layer(checkpoint, record, layer, layer_prefix(index), spec.hidden_size, dtype)
            for index, (record, layer) in enumerate(layers)
        ),
    )


def _layer(
    checkpoint: WidenedCheckpoint, record: LayerSpec, layer: LayerWeights, prefix: str, hidden: int, dtype: torch.dtype
) -> LayerWeights:
    attention = record.mixer
    if not isinstance(attention, Attention) or not isinstance(record.ffn, Dense) or layer.attention.gate_FD is not None:
        raise ModelError(f"{checkpoint.folder}: activations of eight bits are for dense models without gates alone")
    shapes = layer_shapes(record, hidden, prefix)

    def read(*names: str) -> Int8Weight:
        names = tuple(f"{prefix}.{name}.weight" for name in names)
        parts = [checkpoint.read_whole(name, shapes[name], dtype) for name in names]
        return Int8Weight(_joined([one.whole_FD for one in parts]), _joined([one.scale_F for one in parts]), dtype)

    qkv = read(*(f"self_attn.{name}_proj" for name in ("qkk" if attention.k_as_v else "qkv")))
    turned = Int8Weight(halves_apart(qkv.whole_FD, attention), halves_apart(qkv.scale_F, attention), dtype)
    mixer = replace(layer.attention, qkv_FD=turned, o_DF=read("self_attn.o_proj"))
    ffn = DenseWeights(gate_up_FD=read("mlp.gate_proj", "mlp.up_proj"), down_DF=read("mlp.down_proj"))
    return replace(layer, mixer=mixer, ffn=ffn)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
