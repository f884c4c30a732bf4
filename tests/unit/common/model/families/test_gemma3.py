"""Gemma 3: published configurations are read, others are refused by name, and logits are those of transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from services.common.kernels.rope import Linear
from services.common.model import ModelError, load_target
from services.common.model.families import read_target_spec
from services.common.model.spec import Dense, ModelSpec, Rope
from services.common.model.weights.weights import elements, model_shapes
from tests.support.tiny_checkpoints import TinyShape, write_tiny
from tests.unit.common.model.families.parity import deviation
from tests.unit.common.model.pairs import forward, ids_like, poisoned_states, span_at, tables

FULL, SLIDING = "full_attention", "sliding_attention"
# As published for gemma-3-270m.
SMALL: dict[str, Any] = {
    "_sliding_window_pattern": 6, "architectures": ["Gemma3ForCausalLM"], "attention_bias": False,
    "attention_dropout": 0.0, "attn_logit_softcapping": None, "bos_token_id": 2, "eos_token_id": 1,
    "final_logit_softcapping": None, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 640,
    "initializer_range": 0.02, "intermediate_size": 2048,
    "layer_types": ([SLIDING] * 5 + [FULL]) * 3, "max_position_embeddings": 32768, "model_type": "gemma3_text",
    "num_attention_heads": 4, "num_hidden_layers": 18, "num_key_value_heads": 1, "pad_token_id": 0,
    "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000.0, "rope_scaling": None,
    "rope_theta": 1000000.0, "sliding_window": 512, "torch_dtype": "bfloat16", "transformers_version": "4.55.0.dev0",
    "use_bidirectional_attention": False, "use_cache": True, "vocab_size": 262144,
}  # fmt: skip
# gemma-3-1b-it, whose older file says how often a layer has no window.
OLDER = {name: value for name, value in SMALL.items() if not name.startswith(("layer_types", "_sliding", "use_bi"))} | {
    "cache_implementation": "hybrid", "eos_token_id": [1, 106], "hidden_size": 1152, "intermediate_size": 6912,
    "num_hidden_layers": 26, "sliding_window_pattern": 6,
}  # fmt: skip
# gemma-3-4b-it and gemma-3-27b-it, whose files leave out most.
LINEAR = {"factor": 8.0, "rope_type": "linear"}
WITH_IMAGES: dict[str, Any] = {
    "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "eoi_token_index": 256000,
    "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02, "mm_tokens_per_image": 256,
    "model_type": "gemma3", "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
    "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"},
    "text_config": {
        "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
        "rope_scaling": LINEAR, "sliding_window": 1024,
    },
}  # fmt: skip
LARGE = WITH_IMAGES["text_config"] | {
    "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504, "num_attention_heads": 32,
    "num_hidden_layers": 62, "num_key_value_heads": 16, "query_pre_attn_scalar": 168,
}  # fmt: skip
NEWER = {FULL: {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5},
         SLIDING: {"rope_type": "default", "rope_theta": 3e3}}  # fmt: skip


def read(folder: Path, values: dict[str, Any]) -> ModelSpec:
    (folder / "config.json").write_text(json.dumps(values))
    return read_target_spec(folder)


@pytest.mark.parametrize(("values", "numbers"), [(SMALL, 268_098_176), (OLDER, 999_885_952)], ids=["270M", "1B"])
def test_published_configurations_of_text_are_read(values: dict[str, Any], numbers: int, tmp_path: Path) -> None:
    spec = read(tmp_path, values)
    sliding, full = spec.groups
    assert (sliding.window, full.window, sliding.rope, full.rope) == (512, 0, Rope(1e4), Rope(1e6))
    assert (sliding.heads, sliding.kv_heads, sliding.head_dim, sliding.scale) == (4, 1, 256, 1 / 16)
    assert [index for index, layer in enumerate(spec.layers) if layer.mixer == full] == [*range(5, len(spec.layers), 6)]
    assert {(layer.ffn, layer.sandwich) for layer in spec.layers} == {(Dense(values["intermediate_size"], True), True)}
    assert (spec.tied, spec.norm_offset, spec.embed_scale) == (True, 1.0, values["hidden_size"] ** 0.5)
    assert (spec.max_positions, elements(model_shapes(spec))) == (32768, numbers)


def test_published_configurations_beside_images_are_read(tmp_path: Path) -> None:
    spec = read(tmp_path, WITH_IMAGES)
    sliding, full = spec.groups
    assert (sliding.rope, full.rope, full.heads, full.kv_heads) == (Rope(1e4), Rope(1e6, Linear(8.0)), 8, 4)
    assert (spec.eos_token_ids, spec.vocab_size, spec.tied, spec.max_positions) == ((1, 106), 262208, True, 131072)
    large = read(tmp_path, WITH_IMAGES | {"text_config": LARGE})
    assert (large.groups[0].head_dim, large.groups[0].scale, large.groups[0].window) == (128, 168**-0.5, 1024)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({"hidden_activation": "silu"}, "hidden_activation"),
        ({"attention_bias": True}, "attention_bias"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"layer_types": [FULL] * 17}, "layer_types"),
        ({"layer_types": ["chunked_attention"] * 18}, "layer_types"),
        ({"sliding_window": None}, "sliding_window"),
        ({"sliding_window": 0}, "sliding_window"),
        ({"sliding_window_pattern": 0}, "sliding_window_pattern"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_scaling.rope_type"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling.factor"),
        ({"rope_scaling": LINEAR, "rope_parameters": NEWER}, "rope_scaling"),
        ({"rope_parameters": NEWER | {"chunked_attention": {}}}, "rope_parameters.chunked_attention"),
        ({"rope_parameters": NEWER | {FULL: {"rope_theta": 1.0}}}, "rope_parameters.full_attention.rope_theta"),
        ({"num_experts": 8}, "num_experts"),
    ],
)
def test_what_is_not_implemented_is_refused(change: dict[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"config\.json: {named}:"):
        read(tmp_path, SMALL | change)


def test_a_gpu_refuses_float64_in_one_line_before_weights_are_read(tmp_path: Path) -> None:
    read(tmp_path, SMALL)
    with pytest.raises(ModelError, match="norms behind parts of blocks in float64 run on a CPU only"):
        load_target(tmp_path, torch.float64, device="cuda", random_weights=True)


@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        (TinyShape(layers=6), {}),
        (TinyShape(layers=3, tied=False, window=7, kv_heads=1), {}),
        (TinyShape(layers=3, window=64), {}),
        (TinyShape(layers=4), {"rope_scaling": LINEAR, "rope_local_base_freq": 2e3}),
        (TinyShape(layers=4), {"rope_parameters": NEWER}),
    ],
    ids=["tied", "untied", "a wide window", "older tables", "newer tables"],
)
def test_logits_are_those_of_transformers(shape: TinyShape, changes: dict[str, Any], tmp_path: Path) -> None:
    """In float32, far within 1e-3 of their scale, beyond the window."""
    folder = write_tiny(tmp_path, 1, shape, std=0.25, family="gemma3_text", changes=changes).target
    assert deviation(folder, 75, beginning=shape.window) <= 1e-5


def test_parts_of_a_file_that_are_not_served_change_nothing(tmp_path: Path) -> None:
    whole = load_target(write_tiny(tmp_path / "whole", 1, family="gemma3").target)
    text = load_target(write_tiny(tmp_path / "text", 1, family="gemma3_text").target)
    ids, rows = ids_like(1, 41), span_at(tables([11], 11), [0], 41)
    hidden = [forward(target, ids, rows, poisoned_states(target))[0] for target in (whole, text)]
    assert torch.equal(*hidden)
