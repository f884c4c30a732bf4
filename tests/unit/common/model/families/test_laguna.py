"""Laguna: a published configuration is read, others are refused by name, and logits are those of transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from services.common.kernels.rope import Yarn
from services.common.model import ModelError, load_target
from services.common.model.families import read_target_spec
from services.common.model.spec import Dense, Experts, ModelSpec, Rope
from services.common.model.weights.weights import elements, model_shapes
from tests.support.tiny_checkpoints import TinyShape, write_tiny
from tests.unit.common.model.families.parity import deviation

FULL, SLIDING = "full_attention", "sliding_attention"
YARN = {
    "beta_fast": 64.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
    "partial_rotary_factor": 0.5, "rope_theta": 500000.0, "rope_type": "yarn",
}  # fmt: skip
ROPES = {FULL: YARN, SLIDING: {"partial_rotary_factor": 1.0, "rope_theta": 10000.0, "rope_type": "default"}}
# The sizes of Laguna-XS.2.
XS: dict[str, Any] = {
    "architectures": ["LagunaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 2,
    "eos_token_id": [2, 24], "gating": True, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 8192, "layer_types": [FULL, SLIDING, SLIDING, SLIDING] * 10,
    "max_position_embeddings": 131072, "mlp_layer_types": ["dense"] + ["sparse"] * 39, "model_type": "laguna",
    "moe_apply_router_weight_on_input": False, "moe_intermediate_size": 512, "moe_routed_scaling_factor": 2.5,
    "num_attention_heads": 48, "num_attention_heads_per_layer": [48, 64, 64, 64] * 10, "num_experts": 256,
    "num_experts_per_tok": 8, "num_hidden_layers": 40, "num_key_value_heads": 8, "output_router_logits": False,
    "pad_token_id": 9, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-06, "rope_parameters": ROPES,
    "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 512, "sliding_window": 512,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": 100352,
}  # fmt: skip
# The keys that the file of a later version has more.
LATER = {name: value for name, value in XS.items() if name != "partial_rotary_factor"} | {
    "decoder_sparse_step": 1, "gating": "per-head", "gating_types": ["per_head"] * 40, "mlp_only_layers": [0],
    "norm_topk_prob": True, "rope_parameters": ROPES | {"original_max_position_embeddings": 4096},
}  # fmt: skip


def read(folder: Path, values: dict[str, Any]) -> ModelSpec:
    (folder / "config.json").write_text(json.dumps(values))
    return read_target_spec(folder)


def test_published_sizes_are_read(tmp_path: Path) -> None:
    spec = read(tmp_path, XS)
    full, sliding = spec.groups
    assert (full.heads, sliding.heads, full.kv_heads, full.head_dim) == (48, 64, 8, 128)
    assert (full.window, sliding.window, full.head_gates, sliding.head_gates) == (0, 512, True, True)
    assert full.rope == Rope(5e5, Yarn(32.0, 4096, full.rope.scaling.attention_factor, 64.0, 1.0), 64)  # type: ignore[union-attr]
    assert sliding.rope == Rope(1e4)
    experts = Experts(count=256, top_k=8, inner=512, sigmoid=True, factor=2.5, shared=512, shared_gated=False)
    assert [layer.ffn for layer in spec.layers] == [Dense(8192), *[experts] * 39]
    assert elements(model_shapes(spec)) == pytest.approx(33.4e9, rel=0.005)
    assert read(tmp_path, LATER) == spec


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"gating": "per-element"}, "gating"),
        ({"gating_types": ["per_element"] * 40}, "gating_types"),
        ({"gating_types": ["per_head"]}, "gating_types"),
        ({"moe_apply_router_weight_on_input": True}, "moe_apply_router_weight_on_input"),
        ({"norm_topk_prob": False}, "norm_topk_prob"),
        ({"mlp_only_layers": [1]}, "mlp_only_layers"),
        ({"mlp_layer_types": ["dense"] * 39 + ["other"]}, "mlp_layer_types"),
        ({"num_attention_heads_per_layer": [48] * 39}, "num_attention_heads_per_layer"),
        ({"num_attention_heads_per_layer": [47] * 40}, "num_attention_heads_per_layer"),
        ({"num_experts_per_tok": 257}, "num_experts_per_tok"),
        ({"moe_router_logit_softcapping": -1.0}, "num_experts_per_tok"),
        ({"partial_rotary_factor": 0.25}, "partial_rotary_factor"),
        ({"attention_bias": True}, "attention_bias"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"sliding_window": None}, "sliding_window"),
        ({"rope_parameters": {SLIDING: ROPES[SLIDING]}}, r"rope_parameters\.full_attention\.rope_theta"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
    ],
)
def test_what_is_not_implemented_is_refused(change: dict[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"config\.json: {named}:"):
        read(tmp_path, XS | change)


def test_a_gpu_refuses_float64_in_one_line_before_weights_are_read(tmp_path: Path) -> None:
    read(tmp_path, XS)
    with pytest.raises(ModelError, match="experts in float64 run on a CPU only"):
        load_target(tmp_path, torch.float64, device="cuda", random_weights=True)


@pytest.mark.parametrize(
    "changes",
    [{}, {"moe_router_logit_softcapping": 1.5}, {"tie_word_embeddings": False}],
    ids=["usual", "cap", "untied"],
)
def test_logits_are_those_of_transformers(changes: dict[str, Any], tmp_path: Path) -> None:
    """In float32, far within 1e-3 of their scale, beyond the window; heads of queries differ by kind of layer."""
    shape = TinyShape(layers=6)
    folder = write_tiny(tmp_path, 1, shape, std=0.25, family="laguna", changes=changes).target
    assert deviation(folder, 75, beginning=shape.window) <= 1e-5
