"""Qwen2: published configurations are read, others are refused by name, and logits are those of transformers."""

import json
from pathlib import Path
from typing import Any

import pytest

from services.common.kernels.rope import Yarn
from services.common.model import ModelError, load_target
from services.common.model.families import read_target_spec
from services.common.model.files.manifest import write_manifest
from services.common.model.weights.weights import elements, model_shapes
from tests.support.tiny_checkpoints import TinyShape, write_tiny
from tests.unit.common.model.families.parity import deviation

# As published for Qwen2.5-7B-Instruct.
PUBLISHED: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645,
    "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02, "intermediate_size": 18944,
    "max_position_embeddings": 32768, "max_window_layers": 28, "model_type": "qwen2", "num_attention_heads": 28,
    "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "transformers_version": "4.43.1", "use_cache": True, "use_sliding_window": False, "vocab_size": 152064,
}  # fmt: skip
# Qwen2.5-0.5B.
SMALL = PUBLISHED | {
    "hidden_size": 896, "intermediate_size": 4864, "max_window_layers": 24, "num_attention_heads": 14,
    "num_hidden_layers": 24, "num_key_value_heads": 2, "tie_word_embeddings": True, "use_mrope": False,
    "vocab_size": 151936,
}  # fmt: skip
YARN = {"factor": 4.0, "original_max_position_embeddings": 64, "type": "yarn"}
CASES: dict[str, tuple[TinyShape, dict[str, Any]]] = {
    "tied": (TinyShape(), {}),
    "untied": (TinyShape(tied=False), {}),
    "one head of keys": (TinyShape(heads=8, kv_heads=1, head_dim=8), {}),
    "no groups": (TinyShape(heads=3, kv_heads=3, head_dim=12, hidden=48), {}),
    "yarn": (TinyShape(context=256), {"rope_scaling": YARN}),
    "yarn, newer": (
        TinyShape(context=256), {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4} | YARN}
    ),
}  # fmt: skip


def read(folder: Path, values: dict[str, Any]) -> Any:
    (folder / "config.json").write_text(json.dumps(values))
    return read_target_spec(folder)


def test_published_configurations_are_read(tmp_path: Path) -> None:
    spec = read(tmp_path, PUBLISHED)
    attention = spec.attention
    assert (attention.heads, attention.kv_heads, attention.head_dim) == (28, 4, 128)
    assert (attention.bias, attention.qk_norm, attention.rope.theta) == (True, False, 1e6)
    assert (spec.tied, spec.eos_token_ids, spec.max_positions) == (False, (151645,), 32768)
    assert elements(model_shapes(spec)) == 7_615_616_512
    assert elements(model_shapes(read(tmp_path, SMALL))) == 494_032_768


def test_the_longer_context_that_model_cards_recommend_is_read(tmp_path: Path) -> None:
    spec = read(tmp_path, PUBLISHED | {"rope_scaling": YARN | {"original_max_position_embeddings": 32768}})
    assert isinstance(spec.attention.rope.scaling, Yarn)
    assert spec.max_positions == 131072


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"attention_bias": False}, "attention_bias"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"layer_types": ["full_attention"] * 14 + ["sliding_attention"] * 14}, "layer_types"),
        ({"use_mrope": True}, "use_mrope"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"quantization_config": {"quant_method": "awq", "bits": 8}}, "quantization_config.bits"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_scaling.rope_type"),
        ({"num_experts": 60}, "num_experts"),
    ],
)
def test_what_is_not_implemented_is_refused(change: dict[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"config\.json: {named}:"):
        read(tmp_path, PUBLISHED | change)


def test_a_file_without_its_biases_is_refused(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path, family="qwen3").target
    config = json.loads((folder / "config.json").read_text()) | {"architectures": PUBLISHED["architectures"]}
    (folder / "config.json").write_text(json.dumps(config))
    write_manifest(folder)
    with pytest.raises(ModelError, match=r"tensor model\.layers\.0\.self_attn\.k_proj\.bias is missing"):
        load_target(folder)


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """In float32, within 1e-5 of their scale; a stretched context beyond the original length alone."""
    shape, changes = CASES[name]
    folder = write_tiny(tmp_path, 1, shape, std=0.25, family="qwen2", changes=changes).target
    length, beginning = (192, 64) if changes else (21, 0)
    assert deviation(folder, length, beginning) <= 1e-5
