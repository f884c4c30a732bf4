"""A model's weights as its blocks take them, fused at load, and the reader of Hugging Face's common layout."""

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor

from services.common.kernels.linear.grouped.weight import GroupedWeight
from services.common.kernels.linear.int8_weight import Int8Weight, quantised
from services.common.kernels.linear.packed_weight import Codes, PackedWeight
from services.common.kernels.linear.weight import Weight, changed, joined
from services.common.model.fields.errors import ModelError
from services.common.model.files.checkpoint import TensorSource
from services.common.model.files.kept import read_codes, read_weight
from services.common.model.spec import Attention, Delta, Dense, Experts, LayerSpec, ModelSpec
from services.common.model.weights.delta_weights import DeltaWeights, delta_shapes, read_delta
from services.common.model.weights.ffn_weights import (
    STACKED,
    BesideWeights,
    DenseWeights,
    ExpertWeights,
    FfnWeights,
    ffn_shapes,
    filled,
    read_ffn,
)
from services.common.model.weights.fold import halves_apart, queries_and_gates

Shapes = dict[str, tuple[int, ...]]
"""Of tensors, by name."""
_NORMS = "input_layernorm", "post_attention_layernorm"
"""Of a block: before its mixer, and before its feed-forward part."""
_SANDWICH = "input_layernorm", "pre_feedforward_layernorm", "post_attention_layernorm", "post_feedforward_layernorm"
"""The same where results are normalised too, and the norms of these."""
_SCALE = "layer_scalar"
_EMBED, _NORM, _HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


@dataclass(frozen=True)
class AttentionWeights:
    """Queries, keys and values are concatenated along their outputs; head norms are repeated per head.

    `gate_FD`, where there is one, is the product whose sigmoid the mixed rows are multiplied by, or whose softplus
    multiplies their heads. Gates of heads lie behind `qkv_FD` in the same memory, `both_FD`, filled up with zeros: one
    product makes both.
    """

    qkv_FD: Weight
    bias_F: Tensor | None
    head_norm_HD: Tensor | None
    o_DF: Weight
    gate_FD: Tensor | None = None
    both_FD: Tensor | None = None


@dataclass(frozen=True)
class LayerWeights:
    """One block. `post_norm_D` comes before its feed-forward part.

    Where results are normalised before they are added, `mixed_norm_D` is the mixer's, `fed_norm_D` that part's.
    `scale_1` is what the stream is multiplied by after the block, None: nothing.
    """

    input_norm_D: Tensor
    mixer: AttentionWeights | DeltaWeights
    post_norm_D: Tensor
    ffn: FfnWeights
    mixed_norm_D: Tensor | None = None
    fed_norm_D: Tensor | None = None
    scale_1: Tensor | None = None

    @property
    def attention(self) -> AttentionWeights:
        """The mixer of a layer of attention."""
        assert isinstance(self.mixer, AttentionWeights), "a recurrent layer has no attention"
        return self.mixer

    @property
    def dense(self) -> DenseWeights:
        """The feed-forward part of a layer without experts."""
        assert isinstance(self.ffn, DenseWeights), "a layer with experts has no dense part"
        return self.ffn

    @property
    def int8(self) -> tuple[Int8Weight, ...]:
        """Those of its products that have eight bits."""
        own = (self.attention.qkv_FD, self.attention.o_DF, self.dense.gate_up_FD, self.dense.down_DF)
        return tuple(weight for weight in own if isinstance(weight, Int8Weight))

    def in_int8(self) -> "LayerWeights":
        """The block with products by weights of eight bits, nearest to these."""
        mixer, ffn = self.attention, self.dense
        own = (mixer.qkv_FD, mixer.o_DF, ffn.gate_up_FD, ffn.down_DF)
        qkv_FD, o_DF, gate_up_FD, down_DF = (quantised(weight) for weight in own if isinstance(weight, Tensor))
        gate_FD = None if mixer.gate_FD is None else mixer.gate_FD.clone()
        return replace(
            self,
            mixer=replace(mixer, qkv_FD=qkv_FD, o_DF=o_DF, gate_FD=gate_FD, both_FD=None),
            ffn=DenseWeights(gate_up_FD=gate_up_FD, down_DF=down_DF),
        )


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


def products(weights: ModelWeights) -> tuple[tuple[int, int], ...]:
    """Return the shapes [outputs, depth] of the weights of mixers, feed-forward parts and head, each once.

    Products of rows in eight bits are left out: sums of whole numbers have no order, those of codes one engine.
    """
    found = [weight for layer in weights.layers for weight in (*_mixing(layer.mixer), *layer.ffn.products)]
    ordered = [weight for weight in (*found, weights.lm_head_VD) if not isinstance(weight, Int8Weight | GroupedWeight)]
    return tuple(dict.fromkeys((weight.shape[0], weight.shape[1]) for weight in ordered))


def weight_bytes(weights: ModelWeights) -> int:
    """Return what a model's numbers take on its device: products as they are kept, all others in the model's type."""
    found = [weight for layer in weights.layers for weight in (*_mixing(layer.mixer), *layer.ffn.products)]
    kept = [weight for weight in found if not isinstance(weight, Tensor)]
    others = weights.elements - sum(prod(weight.shape) for weight in kept)
    experts = mixtures(weights)
    cold = sum(own.cold.nbytes for own in experts if own.cold is not None)
    coded, scales = sum(own.code_bytes for own in experts), sum(own.scale_bytes for own in experts)
    plain = weights.embed_VD.itemsize * (others - coded)
    return plain + coded + scales + sum(weight.nbytes for weight in kept) - cold


def mixtures(weights: ModelWeights) -> tuple[ExpertWeights, ...]:
    """Return the experts of every layer that has them."""
    parts = [layer.ffn.experts if isinstance(layer.ffn, BesideWeights) else layer.ffn for layer in weights.layers]
    return tuple(part for part in parts if isinstance(part, ExpertWeights))


def widened_bytes(weights: ModelWeights) -> int:
    """Return what the largest weight takes that is widened for products of many rows."""
    found = [weight for layer in weights.layers for weight in (*_mixing(layer.mixer), *layer.ffn.products)]
    codes = [prod(one.shape) for one in found if isinstance(one, PackedWeight) and one.numbers_FD is None]
    return weights.embed_VD.itemsize * max(codes, default=0)


def _mixing(mixer: AttentionWeights | DeltaWeights) -> tuple[Weight, ...]:
    if isinstance(mixer, DeltaWeights):
        return mixer.into_FD, mixer.o_DF
    if mixer.both_FD is not None:
        return mixer.both_FD, mixer.o_DF
    return (mixer.qkv_FD, mixer.o_DF) if mixer.gate_FD is None else (mixer.qkv_FD, mixer.o_DF, mixer.gate_FD)


def table_elements(spec: ModelSpec) -> int:
    """Return the numbers of the embedding and of a head of its own."""
    return (1 if spec.tied else 2) * spec.vocab_size * spec.hidden_size


def model_shapes(spec: ModelSpec, names: Set[str] = frozenset()) -> Shapes:
    """Return name and shape of every tensor of a model; a tied head has none.

    `names` are those of the file: experts have tensors of their own, or are stacked where they are so there.
    """
    table = (spec.vocab_size, spec.hidden_size)
    shapes: Shapes = {_EMBED: table, _NORM: (spec.hidden_size,)}
    for index, layer in enumerate(spec.layers):
        shapes |= layer_shapes(layer, spec.hidden_size, layer_prefix(index), names)
    return shapes if spec.tied else shapes | {_HEAD: table}


def layer_shapes(layer: LayerSpec, hidden: int, prefix: str, names: Set[str] = frozenset(), inputs: int = 0) -> Shapes:
    """Return name and shape of every tensor of the block called `prefix`; `names` as in `model_shapes`.

    Queries, keys and values are products of `inputs` columns; 0: of `hidden`.
    """
    shapes: Shapes = {f"{name}.weight": (hidden,) for name in (_SANDWICH if layer.sandwich else _NORMS)}
    if isinstance(layer.mixer, Delta):
        shapes |= {f"linear_attn.{name}": shape for name, shape in delta_shapes(layer.mixer, hidden).items()}
    else:
        mixing = _attention_shapes(layer.mixer, hidden, inputs or hidden)
        shapes |= {f"self_attn.{name}": shape for name, shape in mixing.items()}
    stacked = f"{prefix}.{STACKED}" in names
    shapes |= ffn_shapes(layer.ffn, hidden, stacked) | ({_SCALE: (1,)} if layer.scaled else {})
    return {f"{prefix}.{name}": shape for name, shape in shapes.items()}


def read_model(
    spec: ModelSpec,
    checkpoint: TensorSource,
    dtype: torch.dtype,
    device: torch.device,
    skipped: tuple[str, ...] = (),
) -> ModelWeights:
    """Read all of a model; names that begin as `skipped` are those of parts that are not served.

    Raises:
        ModelError: a tensor is missing, foreign, mis-shaped or not finite, or a tied head differs from the embedding.
    """
    names = checkpoint.names
    shapes, has_head = model_shapes(spec, names), not spec.tied or _HEAD in names
    checkpoint.refuse_other_than([*shapes, _HEAD] if has_head else shapes, skipped)
    table = shapes[_EMBED]
    embed_VD = checkpoint.read(_EMBED, table, dtype)
    head_VD = checkpoint.read(_HEAD, table, dtype) if has_head else embed_VD
    if spec.tied and not embed_VD.is_meta and not torch.equal(embed_VD, head_VD):
        raise ModelError(
            f"{checkpoint.folder}: tensor {_HEAD} differs from {_EMBED}, though config.json has tie_word_embeddings; "
            "set that to false if the head is the model's own"
        )
    embed_VD = embed_VD.to(device)
    return ModelWeights(
        embed_VD=embed_VD,
        lm_head_VD=embed_VD if spec.tied else head_VD.to(device),
        layers=tuple(
            read_layer(checkpoint, layer, spec.hidden_size, layer_prefix(index), dtype, device, names)
            for index, layer in enumerate(spec.layers)
        ),
        norm_D=checkpoint.read(_NORM, shapes[_NORM], dtype).to(device),
        elements=elements(shapes),
        revision=checkpoint.revision,
    )


def read_layer(
    checkpoint: TensorSource,
    layer: LayerSpec,
    hidden: int,
    prefix: str,
    dtype: torch.dtype,
    device: torch.device,
    names: Set[str] = frozenset(),
    inputs: int = 0,
) -> LayerWeights:
    """Read one block; `names` are those of the file, `inputs` as in `layer_shapes`.

    Raises:
        ModelError: a tensor is missing, mis-shaped or not finite.
    """
    shapes = layer_shapes(layer, hidden, prefix, names, inputs)

    def read(*names: str, wide: torch.dtype = dtype) -> Tensor:
        parts = [checkpoint.read(f"{prefix}.{name}", shapes[f"{prefix}.{name}"], wide) for name in names]
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).to(device)

    def weigh(*names: str) -> Weight:
        own = [f"{prefix}.{name}" for name in names]
        return joined([read_weight(checkpoint, name, shapes[name], dtype) for name in own]).to(device)

    def mixed(*names: str) -> Weight:
        weight = weigh(*names)
        numbers_FD = weight.numbers_FD if isinstance(weight, PackedWeight) else None
        return weight if numbers_FD is None else numbers_FD

    def decode(name: str) -> Codes | None:
        own = f"{prefix}.{name}"
        return read_codes(checkpoint, own, shapes[own], dtype)

    mixer = layer.mixer
    of_products = weigh if keeps_packed(layer) else mixed if mixes_packed(layer) else read
    before_D, between_D, *around = (read(f"{name}.weight") for name in (_SANDWICH if layer.sandwich else _NORMS))
    return LayerWeights(
        input_norm_D=before_D,
        mixer=read_delta(mixer, read, dtype) if isinstance(mixer, Delta) else _read_attention(mixer, read, of_products),
        post_norm_D=between_D,
        ffn=read_ffn(layer.ffn, read, f"{prefix}.{STACKED}" in shapes, of_products, decode),
        mixed_norm_D=around[0] if around else None,
        fed_norm_D=around[1] if around else None,
        scale_1=read(_SCALE) if layer.scaled else None,
    )


def keeps_packed(layer: LayerSpec) -> bool:
    """Whether the products of a block may read weights as a file has them."""
    mixer = layer.mixer
    return isinstance(mixer, Attention) and isinstance(layer.ffn, Dense) and not (mixer.gated or mixer.head_gates)


def mixes_packed(layer: LayerSpec) -> bool:
    """Whether the same holds for the mixer of a block with experts, where there is no room for numbers beside codes.

    Few rows wait longer for its products by codes: these are chains, and what follows them begins early by numbers
    alone.
    """
    mixer = layer.mixer
    return isinstance(mixer, Attention) and isinstance(layer.ffn, Experts) and not (mixer.gated or mixer.head_gates)


def _read_attention(
    attention: Attention, read: Callable[..., Tensor], weigh: Callable[..., Weight]
) -> AttentionWeights:
    bias_F = read(*(f"self_attn.{name}_proj.bias" for name in "qkv")) if attention.bias else None
    products = "qkk" if attention.k_as_v else "qkv"
    names = [f"self_attn.{name}_proj.weight" for name in products]
    qkv_FD: Weight
    gate_FD, both_FD = None, None
    if attention.gated:
        qkv_FD, gate_FD = queries_and_gates(read(*names), attention)
    else:
        qkv_FD = weigh(*names)
    qkv_FD = changed(qkv_FD, lambda lines: halves_apart(lines, attention))
    if attention.head_gates:
        assert isinstance(qkv_FD, Tensor), "products of a block with gates are not packed"
        count, both_FD = len(qkv_FD), filled(qkv_FD, read("self_attn.g_proj.weight"))
        qkv_FD, gate_FD = both_FD[:count], both_FD[count : count + attention.heads]
    return AttentionWeights(
        qkv_FD=qkv_FD,
        bias_F=bias_F,
        head_norm_HD=_head_norms(attention, read) if attention.qk_norm else None,
        o_DF=weigh("self_attn.o_proj.weight"),
        gate_FD=gate_FD,
        both_FD=both_FD,
    )


def _head_norms(attention: Attention, read: Callable[..., Tensor]) -> Tensor:
    names = "self_attn.q_norm.weight", "self_attn.k_norm.weight"
    queries_D, keys_D = (halves_apart(read(name), attention) for name in names)
    return torch.cat((queries_D.expand(attention.heads, -1), keys_D.expand(attention.kv_heads, -1)))


def _attention_shapes(attention: Attention, hidden: int, inputs: int) -> Shapes:
    head = attention.head_dim
    queries, keys = attention.heads * head, attention.kv_heads * head
    lines = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
    shapes: Shapes = {f"{name}.weight": (count, inputs) for name, count in lines.items()}
    if attention.gated:
        shapes["q_proj.weight"] = (2 * queries, inputs)
    if attention.k_as_v:
        del shapes["v_proj.weight"]
    if attention.head_gates:
        shapes["g_proj.weight"] = (attention.heads, inputs)
    shapes["o_proj.weight"] = (hidden, queries)
    if attention.bias:
        shapes |= {f"{name}.bias": (count,) for name, count in lines.items()}
    if attention.qk_norm:
        shapes |= {"q_norm.weight": (head,), "k_norm.weight": (head,)}
    return shapes


def layer_prefix(index: int) -> str:
    """Return how names of a block's tensors begin."""
    return f"model.layers.{index}"
