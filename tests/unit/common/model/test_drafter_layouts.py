"""The published layouts of DFlash drafters: which keys there are and where; sizes are like the published ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from services.common.kernels.rope import Yarn
from services.common.kernels.span_attention import Mask
from services.common.model import ModelError
from services.common.model.drafters import read_drafter_spec
from services.common.model.drafters.spec import DrafterSpec, context_shapes, drafter_shapes
from services.common.model.spec import Rope

OPEN, SLIDING = Mask(), Mask(2048, causal=True)
COMMON: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"], "attention_bias": False, "attention_dropout": 0.0, "dtype": "bfloat16",
    "head_dim": 128, "hidden_act": "silu", "initializer_range": 0.02, "max_position_embeddings": 262144,
    "model_type": "qwen3", "num_attention_heads": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "tie_word_embeddings": False, "use_cache": True, "vocab_size": 248320,
}  # fmt: skip
NEW_ROPE = {"rope_parameters": {"rope_theta": 10000000, "rope_type": "default"}}
YARN = {"factor": 64.0, "original_max_position_embeddings": 4096, "beta_fast": 32.0, "beta_slow": 1.0}


def sizes(width: int, inner: int, layers: int, target: int) -> dict[str, Any]:
    return {"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers, "num_target_layers": target}


def taps(mask_id: int, *layer_ids: int, **others: Any) -> dict[str, Any]:
    return {"dflash_config": {"mask_token_id": mask_id, "target_layer_ids": list(layer_ids), **others}}


def slides(sliding: int, full: int, window: int = 2048) -> dict[str, Any]:
    kinds = ["sliding_attention"] * sliding + ["full_attention"] * full
    return {"layer_types": kinds, "sliding_window": window, "use_sliding_window": True, "max_window_layers": len(kinds)}


def full(layers: int) -> dict[str, Any]:
    return {"layer_types": ["full_attention"] * layers, "sliding_window": None, "use_sliding_window": False}


GEMMA = {"bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0, "vocab_size": 262144, "rope_theta": 1000000}
CAPPED = {"final_logit_softcapping": 30.0}
GATED: dict[str, Any] = sizes(3072, 12288, 6, 0) | slides(6, 0, 512) | {
    "architectures": ["DFlashLagunaForCausalLM"], "model_type": "laguna", "gating": "per-head", "vocab_size": 100352,
    "draft_vocab_size": 100352, "num_attention_heads": 72, "rope_theta": 500000.0, "sliding_windows": [512] * 6,
    "max_position_embeddings": 1048576, "eagle_aux_hidden_state_layer_ids": [2, 11, 20, 30, 39, 48],
} | taps(12, 1, 10, 19, 29, 38, 47, block_size=16, num_target_layers=48, causal=True)  # fmt: skip
for _name in ("num_target_layers", "use_sliding_window", "max_window_layers"):
    del GATED[_name]
"""Of Laguna S 2.1, which says in `dflash_config` what others say beside it."""
LAYOUTS: dict[str, dict[str, Any]] = {
    "Qwen3.5-4B": sizes(2560, 9728, 5, 32) | full(5) | NEW_ROPE | {"block_size": 16}
    | taps(248077, 1, 5, 9, 13, 16, 20, 24, 28),
    "Qwen3.5-27B": sizes(5120, 17408, 5, 64) | full(5) | {"rope_theta": 10000000, "rope_scaling": None}
    | {"block_size": 16} | taps(248070, 1, 16, 31, 46, 61),
    "Qwen3.5-35B-A3B": sizes(2048, 6144, 8, 40) | full(8) | {"block_size": 16, "rope_theta": 10000000}
    | {"num_key_value_heads": 4} | taps(248070, 1, 10, 19, 28, 37),
    "Qwen3.6-27B": sizes(5120, 17408, 5, 64) | slides(4, 1) | {"block_size": 16}
    | {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000000, **YARN}} | taps(248070, 1, 16, 31, 46, 61),
    "Qwen3.6-35B-A3B": sizes(2048, 6144, 6, 40) | slides(5, 1, 4096) | NEW_ROPE
    | taps(248077, 1, 6, 11, 16, 22, 27, 32, 37, block_size=16),
    "gpt-oss-20b": sizes(2880, 7680, 8, 24) | full(8) | {"block_size": 8, "rope_theta": 150000, "vocab_size": 201088}
    | {"num_attention_heads": 64} | taps(200000, 1, 6, 11, 16, 21),
    "Gemma4-26B-A4B": sizes(2816, 5632, 5, 30) | slides(4, 1) | GEMMA | CAPPED | {"block_size": 16}
    | taps(4, 1, 6, 11, 17, 22, 27),
    "Gemma4-31B": sizes(5376, 10752, 5, 60) | slides(4, 1) | GEMMA | {"num_attention_heads": 64, "block_size": 16}
    | taps(4, 1, 12, 23, 35, 46, 57, input_embedding_scale=73.5, **CAPPED),
    "Laguna-S-2.1": GATED,
    "none causal": sizes(5120, 17408, 5, 64) | slides(5, 0) | NEW_ROPE | {"is_causal": False}
    | taps(248070, 5, 19, 33, 47, 61, block_size=8),
}  # fmt: skip


def read(folder: Path, layout: dict[str, Any]) -> DrafterSpec:
    (folder / "config.json").write_text(json.dumps(COMMON | layout))
    return read_drafter_spec(folder)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_published_layout_is_read(name: str, tmp_path: Path) -> None:
    layout, spec = LAYOUTS[name], read(tmp_path, LAYOUTS[name])
    assert len(spec.layers) == len(spec.masks) == layout["num_hidden_layers"]
    assert spec.target_layer_ids == tuple(layout["dflash_config"]["target_layer_ids"])
    assert spec.mask_token_id == layout["dflash_config"]["mask_token_id"]
    width = layout["hidden_size"]
    assert context_shapes(spec)["fc.weight"] == (width, width * len(spec.target_layer_ids))


def test_a_drafter_says_which_shorter_blocks_it_has_seen(tmp_path: Path) -> None:
    layout = LAYOUTS["Qwen3.5-27B"]
    block, inner = layout["block_size"], layout["dflash_config"]
    spec = read(tmp_path, layout | {"dflash_config": inner | {"short_block_sizes": [8, 4]}})
    assert [spec.block_for(drafts) for drafts in (1, 3, 4, 7, 8, block - 1)] == [4, 4, 8, 8, block, block]
    assert read(tmp_path, layout).block_for(1) == block


@pytest.mark.parametrize("sizes", [[1], [16], [4.0], ["4"], [True], [-8]])
def test_a_shorter_block_that_cannot_be_is_refused(tmp_path: Path, sizes: list[Any]) -> None:
    layout = LAYOUTS["Qwen3.5-27B"]
    inner = layout["dflash_config"] | {"short_block_sizes": sizes}
    with pytest.raises(ModelError, match=r"short_block_sizes: must be sizes from 2 on below 16"):
        read(tmp_path, layout | {"dflash_config": inner})


def test_what_the_layouts_say_of_windows(tmp_path: Path) -> None:
    masks = {name: read(tmp_path, layout).masks for name, layout in LAYOUTS.items()}
    assert masks["Qwen3.5-27B"] == (OPEN,) * 5
    assert masks["Qwen3.6-27B"] == masks["Gemma4-31B"] == (SLIDING,) * 4 + (OPEN,)
    assert masks["Qwen3.6-35B-A3B"] == (Mask(4096, causal=True),) * 5 + (OPEN,)
    assert masks["none causal"] == (Mask(2048),) * 5


def test_what_the_layouts_say_of_positions_blocks_and_scales(tmp_path: Path) -> None:
    spec = read(tmp_path, LAYOUTS["Qwen3.6-27B"])
    assert spec.attention.rope.theta == 1e7
    assert isinstance(spec.attention.rope.scaling, Yarn)
    assert spec.max_positions == 262144
    spec = read(tmp_path, LAYOUTS["Qwen3.6-35B-A3B"])
    assert (spec.attention.rope, spec.block_size) == (Rope(1e7), 16)
    spec = read(tmp_path, LAYOUTS["Gemma4-26B-A4B"])
    assert (spec.embed_scale, spec.logit_scale, spec.logit_cap) == (1.0, 1.0, 30.0)
    assert read(tmp_path, LAYOUTS["Gemma4-31B"]).embed_scale == 73.5
    assert read(tmp_path, LAYOUTS["gpt-oss-20b"]).block_size == 8
    spec = read(tmp_path, GATED)
    assert (spec.kind, spec.num_target_layers, spec.block_size, spec.normed_taps) == ("dflash_gated", 48, 16, True)
    assert spec.masks == (Mask(512, causal=True),) * 6
    shapes = drafter_shapes(spec)
    assert shapes["layers.5.self_attn.g_proj.weight"] == (72, 3072)
    assert shapes["aux_hidden_norms.5.weight"] == (3072,)


@pytest.mark.parametrize(
    ("layout", "sentence"),
    [
        (GATED | {"gating": "elementwise"}, "gating: "),
        (GATED | {"sliding_windows": [512] * 5 + [256]}, "sliding_windows: differs"),
        (GATED | {"eagle_aux_hidden_state_layer_ids": [1, 10, 19, 29, 38, 47]}, "eagle_aux.*one behind each"),
        (GATED | {"num_experts": 8}, "num_experts: "),
        ({"speculators_model_type": "medusa"}, "speculators_model_type: 'medusa' is not supported, only .*dspark"),
        (
            {"architectures": [["DFlash2DraftModel"], "Eagle3DeepseekV2ForCausalLM"]},
            "architectures: .* only .'DFlash2DraftModel', .*, 'LlamaForCausalLMEagle3', 'Qwen3DSparkModel'",
        ),
    ],
)
def test_a_relative_is_refused_with_what_to_take_instead(layout: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"config\.json: {sentence}"):
        read(tmp_path, (GATED if "gating" in layout else LAYOUTS["Qwen3.6-27B"]) | layout)
