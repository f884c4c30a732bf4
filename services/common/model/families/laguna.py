"""Laguna XS: windows in three of four layers, gates of heads, and sigmoid routers over many small experts."""

import reprlib
from pathlib import Path

import torch

from services.common.model.fields.fields import Fields
from services.common.model.files.checkpoint import TensorSource
from services.common.model.reading.reading import FULL, SLIDING, read_causal, refuse_known
from services.common.model.reading.rope import read_positions
from services.common.model.reading.sliding import read_kinds, read_ropes, read_window
from services.common.model.spec import Attention, Dense, Experts, LayerSpec, ModelSpec, StackSpec
from services.common.model.weights.weights import ModelWeights, read_model

ARCHITECTURE = "LagunaForCausalLM"
_MOST_HEADS = 1 << 12
_NEUTRAL = {
    "decoder_sparse_step": (1, None),
    "gating": (True, "per-head", None),
    "moe_apply_router_weight_on_input": (False, None),
    "norm_topk_prob": (True, None),
}
_TRAINING = ("output_router_logits", "router_aux_loss_coef")


def read_spec(fields: Fields, folder: Path) -> ModelSpec:
    """Read config.json.

    Raises:
        ModelError: a value is inconsistent, or a key asks for what is not implemented.
    """
    for name, allowed in _NEUTRAL.items():
        fields.neutral(name, allowed)
    for name in _TRAINING:
        fields.take(name, (int, float, bool, type(None)), default=None)
    kinds = read_kinds(fields, every=1)
    positions, mixers, ffns = read_positions(fields), _mixers(fields, kinds), _ffns(fields, len(kinds))
    refuse_known(fields)
    stack = StackSpec(
        vocab_size=fields.positive("vocab_size"),
        hidden_size=fields.positive("hidden_size"),
        layers=tuple(map(LayerSpec, mixers, ffns)),
        max_positions=positions,
        norm_eps=fields.number("rms_norm_eps", default=1e-6),
    )
    return read_causal(fields, folder, stack)


def read_weights(spec: ModelSpec, checkpoint: TensorSource, dtype: torch.dtype, device: torch.device) -> ModelWeights:
    """Read the tensors, which have the common names.

    Raises:
        ModelError: a tensor is missing, foreign, mis-shaped or not finite.
    """
    return read_model(spec, checkpoint, dtype, device)


def _mixers(fields: Fields, kinds: list[str]) -> list[Attention]:
    """Return the attention of each layer, whose heads of queries a list may tell."""
    kv_heads, head_dim = fields.positive("num_key_value_heads"), fields.positive("head_dim")
    windows = {FULL: 0, SLIDING: read_window(fields) if SLIDING in kinds else 0}
    ropes = read_ropes(fields, read_positions(fields), dict.fromkeys(sorted(set(kinds)), head_dim))
    turning = ropes[kinds[0]].turning or head_dim
    share = fields.take("partial_rotary_factor", (int, float, type(None)), default=None)
    if share not in (None, 1, turning / head_dim):
        raise fields.error("partial_rotary_factor", f"differs from rope_parameters, is {share}")
    heads = _heads(fields, len(kinds), kv_heads)
    gates = _per_layer(fields, "gating_types", len(kinds))
    if set(gates) - {"per_head"}:
        raise fields.error("gating_types", f"only per_head is supported, is {reprlib.repr(gates)}")
    return [
        Attention(
            heads=count, kv_heads=kv_heads, head_dim=head_dim, rope=ropes[kind], window=windows[kind], head_gates=True
        )
        for kind, count in zip(kinds, heads, strict=True)
    ]


def _heads(fields: Fields, layers: int, kv_heads: int) -> list[int]:
    """Return each layer's heads of queries."""
    usual = fields.positive("num_attention_heads", most=_MOST_HEADS)
    given = _per_layer(fields, "num_attention_heads_per_layer", layers) or [usual] * layers
    heads = [count for count in given if type(count) is int and 0 < count <= _MOST_HEADS and count % kv_heads == 0]
    if len(heads) != layers:
        raise fields.error("num_attention_heads_per_layer", f"must be multiples of {kv_heads}: {reprlib.repr(given)}")
    return heads


def _ffns(fields: Fields, count: int) -> list[Dense | Experts]:
    """Return the feed-forward part of each layer; without a list the first alone is dense."""
    names = _per_layer(fields, "mlp_layer_types", count) or ["dense", *["sparse"] * (count - 1)]
    if any(name not in ("dense", "sparse") for name in names):
        raise fields.error("mlp_layer_types", f"must be dense or sparse, is {reprlib.repr(names)}")
    plain = fields.take("mlp_only_layers", (list, type(None)), default=None)
    if plain not in (None, [index for index, name in enumerate(names) if name == "dense"]):
        raise fields.error("mlp_only_layers", f"differs from mlp_layer_types, is {reprlib.repr(plain)}")
    experts = Experts(
        count=fields.positive("num_experts"),
        top_k=fields.positive("num_experts_per_tok"),
        inner=fields.positive("moe_intermediate_size"),
        sigmoid=True,
        cap=fields.take("moe_router_logit_softcapping", (int, float), default=0.0),
        factor=fields.number("moe_routed_scaling_factor", default=1.0),
        shared=fields.positive("shared_expert_intermediate_size"),
        shared_gated=False,
    )
    if experts.top_k > experts.count or experts.cap < 0:
        raise fields.error("num_experts_per_tok", f"must be at most num_experts {experts.count}, is {experts.top_k}")
    dense = Dense(fields.positive("intermediate_size"))
    return [dense if name == "dense" else experts for name in names]


def _per_layer(fields: Fields, name: str, count: int) -> list[object]:
    """Return a list with a value for each layer; nothing without the key."""
    given = fields.take(name, (list, type(None)), default=None)
    if given is not None and len(given) != count:
        raise fields.error(name, f"must have {count} values, is {reprlib.repr(given)}")
    return list(given or ())
