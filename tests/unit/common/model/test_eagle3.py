"""EAGLE-3's own: which streams it reads, its head of a part of the vocabulary, its flags, and what is refused."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from services.common.model import ModelError, load_chain, load_target
from services.common.model.drafters import read_any_spec
from services.common.model.drafters.context import open_context
from services.common.model.drafters.eagle3.reading import Eagle3Spec
from services.common.model.files.manifest import write_manifest
from tests.support.tiny_chains import write_eagle3
from tests.unit.common.model.plain_chains import PlainEagle3
from tests.unit.common.model.test_chains import COUNT, SHAPE, Written, changed


def test_streams_are_those_before_the_layers_that_a_file_names(tmp_path: Path) -> None:
    for dialect, taps in (("eagle", (0, 2, 4)), ("speculators", (1, 2, 3)), ("deepspec", (0, 1, 2, 3, 4))):
        spec = read_any_spec(write_eagle3(tmp_path / dialect, 3, SHAPE, dialect=dialect).drafter)
        assert isinstance(spec, Eagle3Spec)
        assert (spec.target_layer_ids, spec.features) == (taps, len(taps))


def test_a_file_that_names_none_has_the_usual_ones(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pair = write_eagle3(tmp_path, 3, SHAPE, eagle_config=None)
    with caplog.at_level(logging.INFO):
        context = open_context(pair.drafter, load_target(pair.target, torch.float64))
    assert context.taps == (1, 2, 2)
    assert "it names no layers to read: after (1, 2, 2)" in caplog.text


def test_the_last_stream_is_refused_for_it_is_normalised(tmp_path: Path) -> None:
    pair = write_eagle3(tmp_path, 3, SHAPE, eagle_config={"eagle_aux_hidden_state_layer_ids": [2, 4, 6]})
    with pytest.raises(ModelError, match="it reads the last layer's stream before the norm, which this target does"):
        open_context(pair.drafter, load_target(pair.target, torch.float64))


@pytest.mark.parametrize("flag", ["norm_output", "norm_before_residual", "norm_before_fc"])
def test_each_flag_is_that_of_the_plain_implementation(flag: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {flag: True}
    pair = write_eagle3(tmp_path, 3, SHAPE, **changes)
    written, plain = Written(pair), PlainEagle3(pair.drafter, torch.float64)
    tables = written.target.embed_VD, written.target.lm_head_VD
    drafts, _ = plain.drafts(written.texts[0].tolist(), written.features[0], *tables, COUNT)
    assert written.propose()[0] == drafts


def test_drafts_are_tokens_that_the_file_names(tmp_path: Path) -> None:
    pair = write_eagle3(tmp_path, 3, SHAPE)
    named = load_file(pair.drafter / "model.safetensors")["d2t"]
    named = named + torch.arange(len(named))
    assert {token for drafts in Written(pair).propose(7) for token in drafts} <= set(named.tolist())


def test_an_embedding_of_its_own_is_used_by_both_halves(tmp_path: Path) -> None:
    """By the target's, which writes keys and values with it, and by the drafter's."""
    pair = write_eagle3(tmp_path, 3, SHAPE)
    shared = Written(pair)
    path = pair.drafter / "model.safetensors"
    tensors, embed = load_file(path), load_file(pair.target / "model.safetensors")["model.embed_tokens.weight"]
    save_file(tensors | {"embed_tokens.weight": embed.clone()}, path)
    write_manifest(pair.drafter)
    same = Written(pair)
    same.holds_what(shared)
    save_file(tensors | {"embed_tokens.weight": embed.flip(0).contiguous()}, path)
    write_manifest(pair.drafter)
    other = Written(pair)
    assert not torch.allclose(other.held(1), shared.held(1))
    assert other.propose() != shared.propose()


@pytest.mark.parametrize(
    ("d2t", "sentence"), [([0, 0, 400], "names tokens outside of 320"), ([1, 0, 0], "names a token twice")]
)
def test_a_map_that_is_none_is_refused(d2t: list[int], sentence: str, tmp_path: Path) -> None:
    pair = write_eagle3(tmp_path, 3, SHAPE, draft_vocab_size=3)
    path = pair.drafter / "model.safetensors"
    save_file(load_file(path) | {"d2t": torch.tensor(d2t)}, path)
    write_manifest(pair.drafter)
    with pytest.raises(ModelError, match=sentence):
        load_chain(pair.drafter)


@pytest.mark.parametrize("name", ["lm_head.weight", "d2t"])
def test_a_part_of_the_vocabulary_needs_its_head_and_its_map(name: str, tmp_path: Path) -> None:
    pair = write_eagle3(tmp_path, 3, SHAPE)
    path = pair.drafter / "model.safetensors"
    save_file({one: tensor for one, tensor in load_file(path).items() if one != name}, path)
    write_manifest(pair.drafter)
    with pytest.raises(ModelError, match=f"tensor {name} is missing"):
        load_chain(pair.drafter)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"num_hidden_layers": 2}, "num_hidden_layers: only one is supported, is 2"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "eagle_config.use_aux_hidden_state: False is not"),
        ({"eagle_config": {"parallel_drafting": True}}, "eagle_config.parallel_drafting: True is not supported"),
        ({"eagle_config": {"other": 1}}, "eagle_config.other: is not a supported key"),
        ({"dflash_config": {"causal": True}}, "dflash_config: is not a supported key"),
        ({"eagle_aux_hidden_state_layer_ids": [0, 1], "eagle_config": None},
         "eagle_aux_hidden_state_layer_ids: must be numbers of layers from 1 on"),
        ({"fc_norm": True}, "fc_norm: True is not supported"),
        ({"target_hidden_size": 33}, "target_hidden_size: 33 is not supported"),
        ({"draft_vocab_size": 321}, "draft_vocab_size: must be in"),
        ({"layer_types": ["sliding_attention"]}, "layer_types: only 1 x"),
        ({"architectures": ["PEagleDraftModel"]}, "architectures: PEagleDraftModel: drafts of all positions at once"),
        ({"architectures": ["EagleLlamaForCausalLM"]}, "architectures: .* first and second generation"),
        ({"mask_hidden": 1}, "mask_hidden: is not a supported key"),
    ],
)  # fmt: skip
def test_what_is_not_served_is_refused_by_its_key(values: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    pair = write_eagle3(tmp_path, 3, SHAPE)
    changed(pair.drafter, **values)
    with pytest.raises(ModelError, match=rf"config\.json: {sentence}"):
        read_any_spec(pair.drafter)


def test_the_librarys_layer_must_be_of_a_known_type(tmp_path: Path) -> None:
    pair = write_eagle3(tmp_path, 3, SHAPE, dialect="speculators")
    layer = {"model_type": "gpt_oss", "num_hidden_layers": 1}
    changed(pair.drafter, transformer_layer_config=layer)
    with pytest.raises(ModelError, match=r"model_type: 'gpt_oss' is not supported, only \['llama', 'qwen3'\]"):
        read_any_spec(pair.drafter)
