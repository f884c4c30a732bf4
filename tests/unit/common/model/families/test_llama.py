"""Llama: published configurations are read, others are refused by name, and logits are those of transformers."""

import json
from pathlib import Path
from typing import Any

import pytest

from services.common.kernels.rope import Llama3
from services.common.model import ModelError, load_target
from services.common.model.families import read_target_spec
from services.common.model.files.manifest import write_manifest
from services.common.model.weights.weights import elements, model_shapes
from tests.support.tiny_checkpoints import TinyShape, write_tiny
from tests.unit.common.model.families.parity import deviation

SCALING = {
    "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}  # fmt: skip
# As published for Llama-3.1-8B-Instruct.
PUBLISHED: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": False, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1,
    "rms_norm_eps": 1e-05, "rope_scaling": SCALING, "rope_theta": 500000.0, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "transformers_version": "4.42.3", "use_cache": True, "vocab_size": 128256,
}  # fmt: skip
# Llama-3.2-1B.
SMALL = PUBLISHED | {
    "eos_token_id": 128001, "head_dim": 64, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "rope_scaling": SCALING | {"factor": 32.0}, "tie_word_embeddings": True,
}  # fmt: skip
# Llama-2-7B, whose file says less.
OLDER: dict[str, Any] = {
    "_name_or_path": "meta-llama/Llama-2-7b-hf", "architectures": ["LlamaForCausalLM"], "bos_token_id": 1,
    "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": None, "tie_word_embeddings": False, "torch_dtype": "float16", "transformers_version": "4.31.0.dev0",
    "use_cache": True, "vocab_size": 32000,
}  # fmt: skip
# SmolLM2-135M.
TINY = OLDER | {
    "bos_token_id": 0, "eos_token_id": 0, "hidden_size": 576, "intermediate_size": 1536, "is_llama_config": True,
    "max_position_embeddings": 8192, "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
    "rope_interleaved": False, "rope_theta": 100000, "tie_word_embeddings": True,
    "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}, "vocab_size": 49152,
}  # fmt: skip
SHORT = SCALING | {"factor": 4.0, "original_max_position_embeddings": 64}
CASES: dict[str, tuple[TinyShape, dict[str, Any]]] = {
    "tied": (TinyShape(), {}),
    "untied": (TinyShape(tied=False), {}),
    "one head of keys": (TinyShape(heads=8, kv_heads=1, head_dim=8), {}),
    "no groups": (TinyShape(heads=3, kv_heads=3, head_dim=12, hidden=48), {}),
    "llama3": (TinyShape(context=256), {"rope_scaling": SHORT}),
    "llama3, newer": (TinyShape(context=256), {"rope_parameters": SHORT | {"rope_theta": 1e4}}),
}


def read(folder: Path, values: dict[str, Any]) -> Any:
    (folder / "config.json").write_text(json.dumps(values))
    return read_target_spec(folder)


def test_published_configurations_are_read(tmp_path: Path) -> None:
    spec = read(tmp_path, PUBLISHED)
    attention = spec.attention
    assert (attention.heads, attention.kv_heads, attention.head_dim) == (32, 8, 128)
    assert (attention.bias, attention.qk_norm, attention.rope.theta) == (False, False, 5e5)
    assert attention.rope.scaling == Llama3(8.0, 8192, 1.0, 4.0)
    assert (spec.tied, spec.eos_token_ids, spec.max_positions) == (False, (128001, 128008, 128009), 131072)


@pytest.mark.parametrize(
    ("values", "numbers"),
    [(PUBLISHED, 8_030_261_248), (SMALL, 1_235_814_400), (OLDER, 6_738_415_616), (TINY, 134_515_008)],
    ids=["3.1-8B", "3.2-1B", "2-7B", "SmolLM2-135M"],
)
def test_weights_are_as_many_as_published(values: dict[str, Any], numbers: int, tmp_path: Path) -> None:
    assert elements(model_shapes(read(tmp_path, values))) == numbers


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"pretraining_tp": 2}, "pretraining_tp"),
        ({"rope_interleaved": True}, "rope_interleaved"),
        ({"hidden_act": "gelu_pytorch_tanh"}, "hidden_act"),
        ({"layer_types": ["sliding_attention"] * 32}, "layer_types"),
        ({"quantization_config": {"quant_method": "fbgemm_fp8"}}, "quantization_config.quant_method"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling.rope_type"),
        ({"rope_scaling": {**SCALING, "high_freq_factor": 1.0}}, "rope_scaling.high_freq_factor"),
        ({"residual_multiplier": 0.22}, "residual_multiplier"),
    ],
)
def test_what_is_not_implemented_is_refused(change: dict[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"config\.json: {named}:"):
        read(tmp_path, PUBLISHED | change)


def test_a_file_with_biases_is_refused(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path, family="qwen2").target
    config = json.loads((folder / "config.json").read_text()) | {"architectures": PUBLISHED["architectures"]}
    (folder / "config.json").write_text(json.dumps(config))
    write_manifest(folder)
    with pytest.raises(ModelError, match=r"tensor model\.layers\.0\.self_attn\.k_proj\.bias is not part of this"):
        load_target(folder)


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """In float32, within 1e-5 of their scale; a stretched context beyond the original length alone."""
    shape, changes = CASES[name]
    folder = write_tiny(tmp_path, 1, shape, std=0.25, family="llama", changes=changes).target
    length, beginning = (192, 64) if changes else (21, 0)
    assert deviation(folder, length, beginning) <= 1e-5
