"""config.json is read strictly: what would change the arithmetic and is not implemented is refused by name."""

import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest

from services.common.kernels.rope import Yarn
from services.common.model import ModelError
from services.common.model.drafters import read_drafter_spec
from services.common.model.drafters.reading import default_layer_ids
from services.common.model.families import read_target_spec
from services.common.model.spec import Rope
from tests.support.tiny_checkpoints import write_tiny

# As published for a 4 B target and its 16-token drafter.
PUBLISHED_DRAFTER: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"], "attention_bias": False, "attention_dropout": 0.0, "block_size": 16,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]}, "dtype": "bfloat16",
    "head_dim": 128, "hidden_act": "silu", "hidden_size": 2560, "initializer_range": 0.02, "intermediate_size": 9728,
    "layer_types": ["full_attention"] * 5, "max_position_embeddings": 40960, "max_window_layers": 5,
    "model_type": "qwen3", "num_attention_heads": 32, "num_hidden_layers": 5, "num_key_value_heads": 8,
    "num_target_layers": 36, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000,
    "sliding_window": None, "tie_word_embeddings": False, "use_cache": True, "use_sliding_window": False,
    "vocab_size": 151936,
}  # fmt: skip
SLIDING: dict[str, Any] = {
    "layer_types": ["sliding_attention"] * 4 + ["full_attention"], "sliding_window": 2048, "use_sliding_window": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = write_tiny(tmp_path_factory.mktemp("pair")).target
    values: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return values


def write(folder: Path, values: object) -> Path:
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def test_the_published_drafter_layout_is_read(tmp_path: Path) -> None:
    spec = read_drafter_spec(write(tmp_path, PUBLISHED_DRAFTER))
    assert (spec.block_size, spec.mask_token_id) == (16, 151669)
    assert spec.target_layer_ids == (1, 9, 17, 25, 33)
    assert spec.attention.rope == Rope(1e6)


def test_block_size_may_stand_inside(tmp_path: Path) -> None:
    values = {name: value for name, value in PUBLISHED_DRAFTER.items() if name != "block_size"}
    values["dflash_config"] = {**values["dflash_config"], "block_size": 8}
    assert read_drafter_spec(write(tmp_path, values)).block_size == 8


def test_layers_that_are_not_named_follow_the_published_rule(tmp_path: Path) -> None:
    values = PUBLISHED_DRAFTER | {"dflash_config": {"mask_token_id": 1}}
    assert read_drafter_spec(write(tmp_path, values)).target_layer_ids == (1, 9, 17, 25, 33)
    assert default_layer_ids(8, 1) == (4,)
    assert default_layer_ids(8, 3) == (1, 3, 5)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"is_causal": 1}, "is_causal"),
        ({"is_causal": True, "dflash_config": {"mask_token_id": 1, "causal": False}}, "is_causal"),
        ({"layer_types": ["sliding_attention"] * 5}, "use_sliding_window"),
        ({"layer_types": ["linear_attention"] * 5}, "layer_types"),
        ({"layer_types": [["sliding_attention"]] * 5}, "layer_types"),
        (SLIDING | {"layer_types": ["sliding_attention"] * 4}, "layer_types"),
        (SLIDING | {"layer_types": None}, "use_sliding_window"),
        (SLIDING | {"sliding_window": None}, "sliding_window"),
        (SLIDING | {"sliding_window": 15}, "sliding_window"),
        ({"final_logit_softcapping": -30.0}, "final_logit_softcapping"),
        ({"input_embedding_scale": 0}, "input_embedding_scale"),
        ({"dflash_config": {"mask_token_id": 1, "output_multiplier": True}}, "dflash_config.output_multiplier"),
        ({"mask_token_id": 1}, "mask_token_id"),
        ({"rope_theta": None, "rope_parameters": {"full_attention": {}}}, "rope_parameters.full_attention"),
        ({"draft_vocab_size": 151937}, "draft_vocab_size"),
        ({"block_size": 1}, "block_size"),
        ({"dflash_config": {"mask_token_id": 151936}}, "dflash_config.mask_token_id"),
        ({"dflash_config": {}}, "dflash_config.mask_token_id"),
        ({"dflash_config": {"mask_token_id": 1, "target_layer_ids": [1, 36]}}, "dflash_config.target_layer_ids"),
        ({"dflash_config": {"mask_token_id": 1, "selector_rank": 256}}, "dflash_config.selector_rank"),
        ({"dflash_config": {"mask_token_id": 1, "sample_from_anchor": 1}}, "dflash_config.sample_from_anchor"),
        ({"dflash_config": {"mask_token_id": 1, "something_new": 0}}, "dflash_config.something_new"),
        ({"num_target_layers": 0}, "num_target_layers"),
        ({"architectures": ["Qwen3ForCausalLM"]}, "architectures"),
    ],
)
def test_a_drafter_that_asks_for_more_is_refused(change: dict[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"config\.json: {named}:"):
        read_drafter_spec(write(tmp_path, PUBLISHED_DRAFTER | change))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rope_scaling": {"rope_type": "longrope", "factor": 4.0}}, "rope_scaling.rope_type"),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e6}}, "rope_parameters.rope_type"),
        ({"rope_scaling": {"type": "yarn"}}, "rope_scaling.factor"),
        ({"rope_scaling": {"type": "yarn", "rope_type": "llama3"}}, "rope_scaling.rope_type"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0, "beta_new": 1}}, "rope_scaling.beta_new"),
        ({"rope_scaling": {"type": "yarn", "factor": 1e300}}, "rope_scaling.factor"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}, "rope_theta": 1.0}, "rope_theta"),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0, "partial_rotary_factor": 0.5}},
            "rope_scaling.partial_rotary_factor",
        ),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}, "rope_parameters": {"rope_theta": 1e4}}, "rope_scaling"),
        (
            {"rope_scaling": {"type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0}},
            "rope_scaling.high_freq_factor",
        ),
        ({"rope_parameters": {"rope_theta": 5.0}, "rope_theta": 6.0}, "rope_theta"),
        ({"attention_bias": True}, "attention_bias"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"quantization_config": {"bits": 4}}, "quantization_config.quant_method"),
        ({"num_experts": 8}, "num_experts"),
        ({"head_dim": 15}, "head_dim"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"hidden_size": -1}, "hidden_size"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"eos_token_id": 320}, "eos_token_id"),
        ({"architectures": [["Qwen3ForCausalLM"]]}, "architectures"),
        ({"max_position_embeddings": 100_000_000}, "max_position_embeddings"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"rope_theta": 10**400}, "rope_theta"),
        ({"head_dim": None, "num_attention_heads": 64}, "head_dim"),
        ({"add_cross_attention": True}, "add_cross_attention"),
    ],
)
def test_a_target_that_asks_for_more_is_refused(
    change: dict[str, Any], named: str, base: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=rf"config\.json: {named}:"):
        read_target_spec(write(tmp_path, base | change))


def test_what_newer_writers_add_is_read(base: dict[str, Any], tmp_path: Path) -> None:
    nested = {name: value for name, value in base.items() if name != "rope_theta"}
    nested |= {
        "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"},
        "eos_token_id": [0, 5],
        "dtype": "float32",
    }
    spec = read_target_spec(write(tmp_path, nested))
    assert spec.attention.rope == Rope(5e5)
    assert spec.eos_token_ids == (0, 5)


HARMLESS: dict[str, Any] = {
    "unsloth_version": "2026.1", "chunk_size_feed_forward": 0, "tie_encoder_decoder": False, "pruned_heads": {},
    "rope_scaling": {"rope_type": "default"}, "attention_dropout": 0.1, "top_p": 0.9, "output_hidden_states": True,
}  # fmt: skip


def test_keys_that_change_nothing_load_and_are_told_once(
    base: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        spec = read_target_spec(write(tmp_path, base | HARMLESS))
    assert spec == read_target_spec(write(tmp_path, base))
    (record,) = (record for record in caplog.records if "no effect" in record.getMessage())
    told = record.getMessage()
    assert str(tmp_path / "config.json") in told
    assert all(name in told for name in ("unsloth_version", "chunk_size_feed_forward", "attention_dropout"))
    assert "hidden_size" not in told


def test_yarn_is_read_as_model_cards_write_it(base: dict[str, Any], tmp_path: Path) -> None:
    """The edit that Qwen3's card recommends leaves `max_position_embeddings` at 40,960."""
    edit = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    spec = read_target_spec(write(tmp_path, base | {"max_position_embeddings": 40960, "rope_scaling": edit}))
    assert spec.max_positions == 131072
    scaling = spec.attention.rope.scaling
    assert isinstance(scaling, Yarn)
    assert scaling.attention_factor == pytest.approx(0.1 * math.log(4) + 1)
    assert (scaling.beta_fast, scaling.beta_slow) == (32, 1)
    newer = {name: value for name, value in base.items() if name != "rope_theta"}
    said = edit | {"rope_theta": 10000.0, "attention_factor": None, "beta_fast": None, "mscale": None}
    newer |= {"max_position_embeddings": 40960, "rope_parameters": said}
    assert read_target_spec(write(tmp_path, newer)) == spec


@pytest.mark.parametrize("text", ["", "[1]", "{", "\udcff", "[" * 200_000, '{"a":' * 200_000])
def test_a_malformed_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ModelError, match=r"config\.json"):
        read_target_spec(tmp_path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json: cannot be read"):
        read_target_spec(tmp_path)
