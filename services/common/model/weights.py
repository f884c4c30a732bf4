"""A model's weights as its blocks take them, fused at load, and the reader of Hugging Face's common layout."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from services.common.model.checkpoint import TensorSource
from services.common.model.errors import ModelError
from services.common.model.spec import Attention, Dense, LayerSpec, ModelSpec

Shapes = dict[str, tuple[int, ...]]
"""Of tensors, by name."""
_EMBED, _NORM, _HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


@dataclass(frozen=True)
class AttentionWeights:
    """Queries, keys and values are concatenated along their outputs; head norms are repeated per head."""

    qkv_FD: Tensor
    bias_F: Tensor | None
    head_norm_HD: Tensor | None
    o_DF: Tensor


@dataclass(frozen=True)
class DenseWeights:
    """The gate's rows come before those of the product that it gates."""

    gate_up_FD: Tensor
    down_DF: Tensor


@dataclass(frozen=True)
class LayerWeights:
    """One block."""

    input_norm_D: Tensor
    mixer: AttentionWeights
    post_norm_D: Tensor
    ffn: DenseWeights


@dataclass(frozen=True)
class ModelWeights:
    """All of a model; `lm_head_VD` is `embed_VD` itself when tied, `elements` counts the numbers."""

    embed_VD: Tensor
    layers: tuple[LayerWeights, ...]
    norm_D: Tensor
    lm_head_VD: Tensor
    elements: int
    revision: str


def elements(shapes: Shapes) -> int:
    """Return how many numbers tensors hold."""
    return sum(map(prod, shapes.values()))


def table_elements(spec: ModelSpec) -> int:
    """Return the numbers of the embedding and of a head of its own."""
    return (1 if spec.tied else 2) * spec.vocab_size * spec.hidden_size


def model_shapes(spec: ModelSpec) -> Shapes:
    """Return name and shape of every tensor of a model; a tied head has none."""
    table = (spec.vocab_size, spec.hidden_size)
    shapes: Shapes = {_EMBED: table, _NORM: (spec.hidden_size,)}
    for index, layer in enumerate(spec.layers):
        shapes |= layer_shapes(layer, spec.hidden_size, _prefix(index))
    return shapes if spec.tied else shapes | {_HEAD: table}


def layer_shapes(layer: LayerSpec, hidden: int, prefix: str) -> Shapes:
    """Return name and shape of every tensor of the block called `prefix`."""
    shapes: Shapes = {"input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,)}
    shapes |= {f"self_attn.{name}": shape for name, shape in _attention_shapes(layer.mixer, hidden).items()}
    shapes |= {f"mlp.{name}": shape for name, shape in _dense_shapes(layer.ffn, hidden).items()}
    return {f"{prefix}.{name}": shape for name, shape in shapes.items()}


def read_model(spec: ModelSpec, checkpoint: TensorSource, dtype: torch.dtype, device: torch.device) -> ModelWeights:
    """Read all of a model.

    Raises:
        ModelError: a tensor is missing, foreign, mis-shaped or not finite, or a tied head differs from the embedding.
    """
    shapes = model_shapes(spec)
    has_head = not spec.tied or _HEAD in checkpoint.names
    checkpoint.refuse_other_than([*shapes, _HEAD] if has_head else shapes)
    table = shapes[_EMBED]
    embed_VD = checkpoint.read(_EMBED, table, dtype)
    head_VD = checkpoint.read(_HEAD, table, dtype) if has_head else embed_VD
    if spec.tied and not torch.equal(embed_VD, head_VD):
        raise ModelError(
            f"{checkpoint.folder}: tensor {_HEAD} differs from {_EMBED}, though config.json has tie_word_embeddings"
        )
    embed_VD = embed_VD.to(device)
    return ModelWeights(
        embed_VD=embed_VD,
        lm_head_VD=embed_VD if spec.tied else head_VD.to(device),
        layers=tuple(
            read_layer(checkpoint, layer, spec.hidden_size, _prefix(index), dtype, device)
            for index, layer in enumerate(spec.layers)
        ),
        norm_D=checkpoint.read(_NORM, shapes[_NORM], dtype).to(device),
        elements=elements(shapes),
        revision=checkpoint.revision,
    )


def read_layer(
    checkpoint: TensorSource, layer: LayerSpec, hidden: int, prefix: str, dtype: torch.dtype, device: torch.device
) -> LayerWeights:
    """Read one block.

    Raises:
        ModelError: a tensor is missing, mis-shaped or not finite.
    """
    shapes = layer_shapes(layer, hidden, prefix)

    def read(*names: str) -> Tensor:
        parts = [checkpoint.read(f"{prefix}.{name}", shapes[f"{prefix}.{name}"], dtype) for name in names]
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).to(device)

    return LayerWeights(
        input_norm_D=read("input_layernorm.weight"),
        mixer=AttentionWeights(
            qkv_FD=read(*(f"self_attn.{name}_proj.weight" for name in "qkv")),
            bias_F=read(*(f"self_attn.{name}_proj.bias" for name in "qkv")) if layer.mixer.bias else None,
            head_norm_HD=_head_norms(layer.mixer, read) if layer.mixer.qk_norm else None,
            o_DF=read("self_attn.o_proj.weight"),
        ),
        post_norm_D=read("post_attention_layernorm.weight"),
        ffn=DenseWeights(
            gate_up_FD=read("mlp.gate_proj.weight", "mlp.up_proj.weight"), down_DF=read("mlp.down_proj.weight")
        ),
    )


def _head_norms(attention: Attention, read: Callable[[str], Tensor]) -> Tensor:
    queries_D, keys_D = read("self_attn.q_norm.weight"), read("self_attn.k_norm.weight")
    return torch.cat((queries_D.expand(attention.heads, -1), keys_D.expand(attention.kv_heads, -1)))


def _attention_shapes(attention: Attention, hidden: int) -> Shapes:
    head = attention.head_dim
    queries, keys = attention.heads * head, attention.kv_heads * head
    lines = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
    shapes: Shapes = {f"{name}.weight": (count, hidden) for name, count in lines.items()}
    shapes["o_proj.weight"] = (hidden, queries)
    if attention.bias:
        shapes |= {f"{name}.bias": (count,) for name, count in lines.items()}
    if attention.qk_norm:
        shapes |= {"q_norm.weight": (head,), "k_norm.weight": (head,)}
    return shapes


def _dense_shapes(dense: Dense, hidden: int) -> Shapes:
    return {
        "gate_proj.weight": (dense.inner, hidden),
        "up_proj.weight": (dense.inner, hidden),
        "down_proj.weight": (hidden, dense.inner),
    }


def _prefix(index: int) -> str:
    return f"model.layers.{index}"
