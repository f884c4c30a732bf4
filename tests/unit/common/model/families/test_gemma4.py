"""Gemma 4: published sizes are read, the smallest are refused by name, and logits are those of transformers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from services.common.kernels.rope import Proportional
from services.common.model import ModelError, load_target
from services.common.model.families import read_target_spec
from services.common.model.spec import Beside, Dense, Experts, ModelSpec, Rope
from services.common.model.weights.weights import elements, model_shapes
from tests.support.tiny_checkpoints import BESIDE, TinyShape, write_tiny
from tests.unit.common.model.families.parity import deviation
from tests.unit.common.model.pairs import forward, ids_like, poisoned_states, span_at, tables

FULL, SLIDING = "full_attention", "sliding_attention"
ROPES = {
    SLIDING: {"rope_theta": 10000.0, "rope_type": "default"},
    FULL: {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
}
# The sizes of gemma-4-31B, dense.
TEXT: dict[str, Any] = {
    "attention_bias": False, "attention_dropout": 0.0, "attention_k_eq_v": True, "bos_token_id": 2, "dtype": "bfloat16",
    "enable_moe_block": False, "eos_token_id": 1, "final_logit_softcapping": 30.0, "global_head_dim": 512,
    "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 5376, "hidden_size_per_layer_input": 0,
    "initializer_range": 0.02, "intermediate_size": 21504, "layer_types": ([SLIDING] * 5 + [FULL]) * 10,
    "max_position_embeddings": 262144, "model_type": "gemma4_text", "moe_intermediate_size": None,
    "num_attention_heads": 32, "num_experts": None, "num_global_key_value_heads": 4, "num_hidden_layers": 60,
    "num_key_value_heads": 16, "num_kv_shared_layers": 0, "pad_token_id": 0, "rms_norm_eps": 1e-06,
    "rope_parameters": ROPES, "sliding_window": 1024, "tie_word_embeddings": True, "top_k_experts": None,
    "use_bidirectional_attention": "vision", "use_cache": True, "use_double_wide_mlp": False, "vocab_size": 262144,
    "vocab_size_per_layer_input": 262144,
}  # fmt: skip
# Those of gemma-4-26B-A4B.
EXPERTS = TEXT | {
    "enable_moe_block": True, "hidden_size": 2816, "intermediate_size": 2112,
    "layer_types": ([SLIDING] * 5 + [FULL]) * 5,
    "moe_intermediate_size": 704,
    "num_attention_heads": 16, "num_experts": 128, "num_global_key_value_heads": 2,
    "num_hidden_layers": 30, "num_key_value_heads": 8, "top_k_experts": 8,
}  # fmt: skip
SMALLEST = {"hidden_size_per_layer_input": 256, "num_kv_shared_layers": 20}


def whole(text: dict[str, Any]) -> dict[str, Any]:
    """The layout of published files: models of images and sound stand beside the text."""
    return {
        "architectures": ["Gemma4ForConditionalGeneration"], "audio_config": None, "boa_token_id": 256000,
        "boi_token_id": 255999, "dtype": "bfloat16", "eoa_token_index": 258883, "eoi_token_id": 258882,
        "eos_token_id": [1, 106], "image_token_id": 258880, "initializer_range": 0.02, "model_type": "gemma4",
        "text_config": text, "tie_word_embeddings": True, "transformers_version": "5.5.0.dev0",
        "video_token_id": 258884, "vision_config": {"hidden_size": 1152}, "vision_soft_tokens_per_image": 280,
    }  # fmt: skip


def read(folder: Path, values: dict[str, Any]) -> ModelSpec:
    (folder / "config.json").write_text(json.dumps(values))
    return read_target_spec(folder)


@pytest.mark.parametrize(("text", "billions"), [(TEXT, 30.7), (EXPERTS, 25.2)], ids=["31B", "26B-A4B"])
def test_published_sizes_are_read(text: dict[str, Any], billions: float, tmp_path: Path) -> None:
    spec = read(tmp_path, whole(text))
    sliding, full = spec.groups
    assert (sliding.head_dim, sliding.window, sliding.k_as_v, sliding.rope) == (256, 1024, False, Rope(1e4))
    assert (full.head_dim, full.window, full.k_as_v, full.kv_heads) == (
        512,
        0,
        True,
        text["num_global_key_value_heads"],
    )
    assert full.rope == Rope(1e6, Proportional(64))
    assert all((own.scale, own.v_norm, own.heads) == (1.0, True, text["num_attention_heads"]) for own in spec.groups)
    assert (spec.logit_cap, spec.norm_offset, spec.embed_scale) == (30.0, 0.0, text["hidden_size"] ** 0.5)
    assert (spec.eos_token_ids, spec.tied, spec.max_positions) == ((1, 106), True, 262144)
    assert elements(model_shapes(spec)) == pytest.approx(billions * 1e9, rel=0.005)
    flat = read(tmp_path, text | {"architectures": ["Gemma4ForCausalLM"]})
    assert flat == replace(spec, eos_token_ids=(1,))


def test_experts_lie_beside_a_dense_part(tmp_path: Path) -> None:
    dense, experts = Dense(2112, gelu=True), Experts(count=128, top_k=8, inner=704, scaled=True, gelu=True)
    spec = read(tmp_path, whole(EXPERTS))
    assert {layer.ffn for layer in spec.layers} == {Beside(dense, experts)}
    assert all(layer.sandwich and layer.scaled for layer in spec.layers)
    assert spec.routes and not read(tmp_path, whole(TEXT)).routes


def test_the_smallest_are_refused_by_name(tmp_path: Path) -> None:
    for change in (SMALLEST, {"hidden_size_per_layer_input": None}):
        text = {name: value for name, value in (TEXT | change).items() if value is not None}
        with pytest.raises(ModelError, match=r"hidden_size_per_layer_input: embeddings of each layer \(E2B, E4B\)"):
            read(tmp_path, whole(text))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_kv_shared_layers": 20}, "num_kv_shared_layers"),
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention"),
        ({"use_double_wide_mlp": True}, "use_double_wide_mlp"),
        ({"hidden_activation": "silu"}, "hidden_activation"),
        ({"attention_bias": True}, "attention_bias"),
        ({"layer_types": [SLIDING] * 30}, "layer_types"),
        ({"global_head_dim": 33}, "head_dim"),
        ({"num_global_key_value_heads": 3}, "num_key_value_heads"),
        ({"top_k_experts": 129}, "top_k_experts"),
        ({"num_experts": None}, "num_experts"),
        ({"rope_parameters": {**ROPES, FULL: {"rope_type": "longrope", "rope_theta": 1e6}}},
         r"rope_parameters\.full_attention\.rope_type"),
        ({"rope_parameters": {**ROPES, FULL: {"partial_rotary_factor": 1.5, "rope_theta": 1e6}}},
         r"rope_parameters\.full_attention\.partial_rotary_factor"),
        ({"rope_parameters": {SLIDING: ROPES[SLIDING]}}, r"rope_parameters\.full_attention\.rope_theta"),
    ],
)  # fmt: skip
def test_what_is_not_implemented_is_refused(change: dict[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"config\.json: text_config\.{named}:"):
        read(tmp_path, whole(EXPERTS | change))


def test_a_gpu_refuses_float64_in_one_line_before_weights_are_read(tmp_path: Path) -> None:
    read(tmp_path, whole(EXPERTS))
    with pytest.raises(ModelError, match="experts in float64 run on a CPU only"):
        load_target(tmp_path, torch.float64, device="cuda", random_weights=True)


@pytest.mark.parametrize(
    "changes", [{}, BESIDE, {"attention_k_eq_v": True}], ids=["dense", "experts", "keys as values"]
)
def test_logits_are_those_of_transformers(changes: dict[str, Any], tmp_path: Path) -> None:
    """In float32, far within 1e-3 of their scale, beyond the window; K/V of both kinds of layers differ in shape."""
    shape = TinyShape(layers=6)
    folder = write_tiny(tmp_path, 1, shape, std=0.25, family="gemma4_text", changes=changes).target
    assert deviation(folder, 75, beginning=shape.window) <= 1e-5


def test_parts_of_a_file_that_are_not_served_change_nothing(tmp_path: Path) -> None:
    shape = TinyShape(layers=3)
    beside = load_target(write_tiny(tmp_path / "whole", 1, shape, family="gemma4").target)
    text = load_target(write_tiny(tmp_path / "text", 1, shape, family="gemma4_text").target)
    ids, rows = ids_like(1, 41), span_at(tables([11], 11), [0], 41)
    hidden = [forward(target, ids, rows, poisoned_states(target))[0] for target in (beside, text)]
    assert torch.equal(*hidden)
