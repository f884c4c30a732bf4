"""What other trainers and servers write of drafters: each file is read as its twin, or refused with what to take.

Each dialect is a tiny pair's own file with the keys and tensors as that maker has them.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from services.common.model import ModelError, load_chain
from services.common.model.drafters import read_any_spec
from services.common.model.drafters.dspark import DSparkSpec
from services.common.model.drafters.eagle3.reading import EAGLE
from services.common.model.drafters.spec import DrafterSpec
from services.common.model.files.manifest import write_manifest
from services.common.preflight.checks import refuse
from tests.support.tiny_chains import write_eagle3
from tests.support.tiny_checkpoints import MASK_ID, TinyPair
from tests.unit.common.model.test_chains import Written
from tests.unit.common.model.test_drafter_kinds import SHAPE, Served, made

MOVED = (
    "mask_token_id", "target_layer_ids", "markov_rank", "markov_head_type", "enable_confidence_head",
    "confidence_head_with_markov",
)  # fmt: skip
NESTED = {"projector_type": "dspark", "attention_mode": "gqa", "confidence_head_alpha": 1.0}
LIBRARY = {
    "base_model_ep_plan": None, "base_model_tp_plan": None, "ignore_keys_at_rope_validation": None, "return_dict": True,
    "auto_map": {"": "config.py"}, "transformers_version": "5.8.1", "id2label": {"0": "LABEL_0"},
}  # fmt: skip
"""What the library that writes configurations puts into any of them."""
MODEL_OPTIMIZER = {
    "use_aux_hidden_state": True, "use_input_layernorm_in_first_layer": True, "use_last_layernorm": True,
    "use_mtp_layernorm": False, "next_layer_regular": True, "parallel_draft_step": 1,
    "parallel_draft_heads_num_layers": 1,
}  # fmt: skip
IMAGES = {"rope_scaling": {"rope_type": "default", "mrope_section": [3, 3, 2], "mrope_interleaved": True}}


def told(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config


def rewrite(folder: Path, config: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    write_manifest(folder)


def nested(pair: TinyPair, inner: dict[str, Any], **outer: Any) -> None:
    """Puts a DSpark drafter's keys into `dflash_config`, as all makers but its first do; `...` leaves one out."""
    config = told(pair.drafter)
    moved: dict[str, Any] = {name: config.pop(name) for name in MOVED} | NESTED | inner
    kept = {name: value for name, value in moved.items() if value is not ...}
    rewrite(pair.drafter, config | {"architectures": ["DSparkDraftModel"], "dflash_config": kept} | outer)


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        ({}, {}),
        ({}, {"architectures": ["DFlashDraftModel"]}),
        ({"attention_mode": ..., "causal": False, "shift_label": True}, LIBRARY),
        ({"enable_confidence_head": ..., "use_confidence_head": True, "confidence_head_with_markov": ...}, {}),
        ({"enable_confidence_head": ..., "confidence_head_with_markov": ...}, {"target_hidden_size": None}),
        ({"use_swa": False, "swa_window_size": None}, {"target_hidden_size": SHAPE.hidden, **IMAGES}),
    ],
    ids=[
        "nested",
        "under DFlash's name",
        "as a server",
        "another name of the confidence",
        "confidence untold",
        "noise",
    ],
)
def test_dspark_with_its_keys_elsewhere_is_read_as_its_twin(
    inner: dict[str, Any], outer: dict[str, Any], tmp_path: Path
) -> None:
    pair = made(tmp_path, "dspark")
    twin = read_any_spec(pair.drafter)
    assert isinstance(twin, DSparkSpec)
    nested(pair, inner, **outer)
    asked = inner.get("enable_confidence_head") is not ... or "use_confidence_head" in inner
    assert read_any_spec(pair.drafter) == (twin if asked else replace(twin, confidence_inputs=0))


def test_a_confidence_that_a_file_carries_without_a_word_changes_no_draft(tmp_path: Path) -> None:
    pair = made(tmp_path, "dspark")
    expected = Served(pair).propose()
    nested(pair, {"enable_confidence_head": ..., "confidence_head_with_markov": ...})
    assert Served(pair).propose() == expected


def test_labels_that_were_not_shifted_mean_that_the_anchor_does_not_predict(tmp_path: Path) -> None:
    pair = made(tmp_path, "dspark")
    nested(pair, {"shift_label": False})
    spec = read_any_spec(pair.drafter)
    assert isinstance(spec, DrafterSpec)
    assert (spec.anchor_predicts, spec.most_drafts) == (False, SHAPE.block_size - 1)
    nested_again = told(pair.drafter) | {"sample_from_anchor": True}
    rewrite(pair.drafter, nested_again)
    with pytest.raises(ModelError, match="shift_label: differs from sample_from_anchor: take another"):
        read_any_spec(pair.drafter)


def test_a_causal_block_is_another_one(tmp_path: Path) -> None:
    pair = made(tmp_path, "dspark")
    nested(pair, {}, is_causal=True)
    spec = read_any_spec(pair.drafter)
    assert isinstance(spec, DrafterSpec)
    assert all(mask.causal for mask in spec.masks)


@pytest.mark.parametrize("kind", ["dflash", "dflash2"])
def test_a_block_whose_file_does_not_count_the_targets_layers(kind: str, tmp_path: Path) -> None:
    pair = made(tmp_path, kind)
    twin = read_any_spec(pair.drafter)
    config = {name: value for name, value in told(pair.drafter).items() if name != "num_target_layers"}
    rewrite(pair.drafter, config | LIBRARY | IMAGES)
    assert read_any_spec(pair.drafter) == replace(twin, num_target_layers=0)


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": ["Eagle3LlamaForCausalLM"]},
        {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 5], **MODEL_OPTIMIZER}},
        {"eagle_config": MODEL_OPTIMIZER, "eagle_aux_hidden_state_layer_ids": [1, 3, 5]},
        {"attention_bias": None, "mlp_bias": None, "pretraining_tp": None, "bos_token_id": None, "pad_token_id": None},
        {**LIBRARY, **IMAGES, "target_model_type": "qwen3_vl", "model_type": "phi3", "tie_word_embeddings": True},
        {"truncated_vocab_size": SHAPE.vocab // 3, "fc_norm": False, "norm_output": False},
    ],
    ids=["a server's name", "optimizer", "taps outside", "nulls", "noise", "two names of the vocabulary"],
)
def test_eagle3_as_others_write_it_is_read_as_its_twin(changes: dict[str, Any], tmp_path: Path) -> None:
    pair = write_eagle3(tmp_path, 3, SHAPE)
    twin = read_any_spec(pair.drafter)
    rewrite(pair.drafter, told(pair.drafter) | changes)
    assert read_any_spec(pair.drafter) == twin


def test_no_layers_named_are_the_usual_ones(tmp_path: Path) -> None:
    """A maker of files writes an empty list where it kept to them."""
    pair = write_eagle3(tmp_path, 3, SHAPE, eagle_config=None)
    twin, key = read_any_spec(pair.drafter), "eagle_aux_hidden_state_layer_ids"
    for inner in ({key: [], **MODEL_OPTIMIZER}, {key: None}):
        rewrite(pair.drafter, told(pair.drafter) | {"eagle_config": inner})
        assert read_any_spec(pair.drafter) == twin


def test_the_librarys_file_may_carry_what_its_base_writes(tmp_path: Path) -> None:
    pair = write_eagle3(tmp_path, 3, SHAPE, dialect="speculators")
    twin, config = read_any_spec(pair.drafter), told(pair.drafter)
    config["transformer_layer_config"] |= LIBRARY
    rewrite(pair.drafter, config | LIBRARY | {"inference_type": "text"})
    assert read_any_spec(pair.drafter) == twin


def test_a_map_of_short_integers(tmp_path: Path) -> None:
    pair = write_eagle3(tmp_path, 3, SHAPE)
    expected, path = Written(pair).propose(), pair.drafter / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors | {"d2t": tensors["d2t"].to(torch.int32)}, path, metadata={"format": "pt"})
    write_manifest(pair.drafter)
    assert Written(pair).propose() == expected


def test_pickled_weights_are_read_once_they_are_converted_as_told(tmp_path: Path) -> None:
    pair = write_eagle3(tmp_path, 3, SHAPE)
    whole, pickled = pair.drafter / "model.safetensors", pair.drafter / "pytorch_model.bin"
    tensors = load_file(whole)
    torch.save(tensors, pickled)
    whole.unlink()
    (pair.drafter / "manifest.sha256").unlink()
    with pytest.raises(ModelError, match=r"save_file\(torch.load\(FILE, weights_only=True\), 'model.safetensors'\)"):
        refuse(str(pair.drafter))
    save_file(torch.load(pickled, weights_only=True), whole)
    assert load_chain(pair.drafter).spec == read_any_spec(pair.drafter)


@pytest.mark.parametrize(
    ("kind", "changes", "sentence"),
    [
        ("dspark", {"moe_preset": "qwen3_5_moe"}, "moe_preset: is not a supported key"),
        ("dspark", {"dflash_config": {"attention_mode": "mla"}}, "attention_mode: 'mla' is not supported"),
        ("dspark", {"dflash_config": {"projector_type": "dspine"}}, "projector_type: 'dspine' is not supported"),
        ("dspark", {"markov_head_type": "gated"}, "markov_head_type: 'gated' is not supported, only 'vanilla'"),
        ("dspark", {"dflash_config": {"markov_rank": 3}}, "markov_rank: differs from dflash_config.markov_rank"),
        ("dflash", {"dflash_config": {"mask_token_id": MASK_ID, "projector_type": "domino"}}, "'domino'"),
        ("dflash", {"dflash_config": None}, "mask_token_id: is missing"),
        ("dflash", {"attention_bias": True, "model_type": "gpt_oss"}, "attention_bias: True is not supported"),
        ("dflash", {"partial_rotary_factor": 0.25}, "partial_rotary_factor: 0.25 is not supported"),
        ("dflash", {"architectures": ["DominoDraftModel"]}, "'DominoDraftModel'. is not supported, only "),
        ("dflash", {"architectures": ["LlamaForCausalLM"]}, "'LlamaForCausalLM'. is not supported, only "),
        ("dflash", {"architectures": ["Qwen3_5MTPDraftModel"]}, "a folder of its own .*: take the target's own folder"),
        ("dflash", {"architectures": ["DeepSeekMTPModel"]}, "drafting heads of this family are not supported: take a"),
        ("eagle3", {"fc_norm": True, "norm_output": True}, "fc_norm: True is not supported"),
        ("eagle3", {"experts_per_token": 4, "num_local_experts": 16}, "experts_per_token: is not a supported key"),
        ("eagle3", {"eagle_config": {"parallel_draft_step": 4}}, "parallel_draft_step: 4: .* take an EAGLE-3 drafter"),
        ("eagle3", {"truncated_vocab_size": 5}, "truncated_vocab_size: 5 is not supported"),
        ("eagle3", {"architectures": ["Eagle3DeepseekV2ForCausalLM"]}, "DeepseekV2ForCausalLM'. is not supported"),
        ("eagle3", {"architectures": [EAGLE], "num_hidden_layers": 4}, "only one is supported, is 4: take a drafter"),
    ],
)  # fmt: skip
def test_what_is_not_served_is_told_with_what_to_take(
    kind: str, changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    pair = write_eagle3(tmp_path, 3, SHAPE) if kind == "eagle3" else made(tmp_path, kind)
    rewrite(pair.drafter, told(pair.drafter) | changes)
    with pytest.raises(ModelError, match=sentence) as refused:
        read_any_spec(pair.drafter)
    assert ": take " in str(refused.value)
