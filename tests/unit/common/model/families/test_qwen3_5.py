"""Qwen3.5 and its relatives: configurations are read or refused by name, and logits are those of transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from services.common.model import ModelError, load_target
from services.common.model.families import read_target_spec
from services.common.model.spec import Attention, Delta
from services.common.model.weights.weights import elements, model_shapes
from tests.support.tiny_checkpoints import TinyShape, write_tiny
from tests.unit.common.model.families.parity import deviation
from tests.unit.common.model.pairs import forward, ids_like, poisoned_states, span_at, tables

ROPE = {
    "mrope_interleaved": True, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25, "rope_theta": 10000000,
    "rope_type": "default",
}  # fmt: skip
TEXT: dict[str, Any] = {
    "attention_bias": False, "attention_dropout": 0.0, "attn_output_gate": True, "dtype": "bfloat16",
    "eos_token_id": 248044, "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu",
    "initializer_range": 0.02, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
    "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32", "max_position_embeddings": 262144,
    "mlp_only_layers": [], "model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1,
    "mtp_use_dedicated_embeddings": False, "rms_norm_eps": 1e-06, "rope_parameters": ROPE, "use_cache": True,
    "vocab_size": 248320,
}  # fmt: skip
# Layers, width, inner width, heads, heads of keys, recurrent value heads, tied; and the numbers of the model of text.
SIZES = {
    "0.8B": (24, 1024, 3584, 8, 2, 16, True, 752_393_024),
    "2B": (24, 2048, 6144, 8, 2, 16, True, 1_881_825_088),
    "4B": (32, 2560, 9216, 16, 4, 32, True, 4_205_751_296),
    "9B": (32, 4096, 12288, 16, 4, 32, False, 8_953_803_264),
    "27B": (64, 5120, 17408, 24, 4, 48, False, 26_895_998_464),
}


def published(size: str) -> dict[str, Any]:
    layers, width, inner, heads, kv_heads, v_heads, tied, _ = SIZES[size]
    text = TEXT | {
        "hidden_size": width, "intermediate_size": inner, "layer_types": layer_types(layers),
        "linear_num_value_heads": v_heads, "num_attention_heads": heads, "num_hidden_layers": layers,
        "num_key_value_heads": kv_heads,
    }  # fmt: skip
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"], "image_token_id": 248056, "model_type": "qwen3_5",
        "text_config": text, "tie_word_embeddings": tied, "transformers_version": "5.2.0", "video_token_id": 248057,
        "vision_config": {"depth": 27, "hidden_size": 1152, "model_type": "qwen3_5"},
        "vision_end_token_id": 248054, "vision_start_token_id": 248053,
    }  # fmt: skip


def layer_types(layers: int) -> list[str]:
    return ["full_attention" if index % 4 == 3 else "linear_attention" for index in range(layers)]


def read(folder: Path, values: dict[str, Any]) -> Any:
    (folder / "config.json").write_text(json.dumps(values))
    return read_target_spec(folder)


@pytest.mark.parametrize("size", SIZES)
def test_published_dense_configurations_are_read(size: str, tmp_path: Path) -> None:
    spec = read(tmp_path, published(size))
    layers, width, _, heads, kv_heads, v_heads, tied, numbers = SIZES[size]
    assert (spec.count(Delta), spec.count(Attention), spec.hidden_size) == (layers * 3 // 4, layers // 4, width)
    assert spec.delta == Delta(k_heads=16, v_heads=v_heads, k_dim=128, v_dim=128, taps=4)
    attention = spec.attention
    assert (attention.heads, attention.kv_heads, attention.head_dim, attention.gated) == (heads, kv_heads, 256, True)
    assert (attention.rope.theta, attention.rope.turning, spec.norm_offset) == (1e7, 64, 1.0)
    assert (spec.tied, spec.eos_token_ids, spec.max_positions) == (tied, (248044,), 262144)
    assert elements(model_shapes(spec)) == numbers


def test_a_model_of_text_alone_is_the_same(tmp_path: Path) -> None:
    nested = read(tmp_path, published("4B"))
    text = published("4B")["text_config"] | {"architectures": ["Qwen3_5ForCausalLM"], "tie_word_embeddings": True}
    assert read(tmp_path, text) == nested


def test_layers_follow_the_interval_where_they_are_not_listed(tmp_path: Path) -> None:
    config = published("0.8B")
    listed = read(tmp_path, config)
    del config["text_config"]["layer_types"]
    assert read(tmp_path, config) == listed


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"attn_output_gate": False}, "attn_output_gate"),
        ({"mamba_ssm_dtype": "bfloat16"}, "mamba_ssm_dtype"),
        ({"linear_num_key_heads": 12}, "linear_num_key_heads"),
        ({"layer_types": ["sliding_attention"] * 32}, "layer_types"),
        ({"layer_types": [["full_attention"]] * 32}, "layer_types"),
        ({"layer_types": ["linear_attention"] * 32}, "layer_types"),
        ({"rope_parameters": ROPE | {"rope_type": "yarn", "factor": 4.0}}, "rope_parameters.rope_type"),
        ({"rope_parameters": ROPE | {"partial_rotary_factor": 1.5}}, "rope_parameters.partial_rotary_factor"),
        ({"num_experts": 64}, "num_experts"),
        ({"attention_bias": True}, "attention_bias"),
    ],
)
def test_what_is_not_implemented_is_refused(change: dict[str, Any], named: str, tmp_path: Path) -> None:
    config = published("4B")
    config["text_config"] |= change
    with pytest.raises(ModelError, match=rf"config\.json: text_config\.{named}:"):
        read(tmp_path, config)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"text_config": None}, "text_config"),
        ({"quantization_config": {"bits": 8}}, "quantization_config.quant_method"),
    ],
)
def test_what_is_not_implemented_beside_the_text_is_refused(change: dict[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"config\.json: {named}:"):
        read(tmp_path, published("4B") | change)


@pytest.mark.parametrize(
    ("family", "shape"),
    [
        ("qwen3_5_text", TinyShape()),
        ("qwen3_5_text", TinyShape(tied=False, heads=8, kv_heads=1, head_dim=32)),
        ("qwen3_next", TinyShape()),
    ],
    ids=["tied", "untied", "next"],
)
def test_logits_are_those_of_transformers(family: str, shape: TinyShape, tmp_path: Path) -> None:
    """In float32, far within 1e-3 of their scale, over more than four blocks of positions."""
    folder = write_tiny(tmp_path, 1, shape, std=0.25, family=family).target
    assert deviation(folder, 70) <= 1e-4


def test_parts_of_a_file_that_are_not_served_change_nothing(tmp_path: Path) -> None:
    """The published layout holds images and a drafting head beside the text, under a name of its own."""
    whole = load_target(write_tiny(tmp_path / "whole", 1, family="qwen3_5").target)
    text = load_target(write_tiny(tmp_path / "text", 1, family="qwen3_5_text").target)
    ids, rows = ids_like(1, 21), span_at(tables([6], 6), [0], 21)
    hidden = [forward(target, ids, rows, poisoned_states(target))[0] for target in (whole, text)]
    assert torch.equal(*hidden)


@pytest.mark.parametrize(
    ("change", "dtype", "named"),
    [({}, torch.float64, "in float64"), ({"linear_key_head_dim": 24}, torch.bfloat16, "heads of 24 by 128")],
)
def test_what_has_no_kernels_is_refused_on_a_gpu_before_weights_are_read(
    change: dict[str, Any], dtype: torch.dtype, named: str, tmp_path: Path
) -> None:
    config = published("4B")
    config["text_config"] |= change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=named):
        load_target(tmp_path, dtype, device="cuda", random_weights=True)
