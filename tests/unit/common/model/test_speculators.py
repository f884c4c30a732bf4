"""Files of the speculators library draft as the same weights in z-lab's layouts, and what they add: a part of the
vocabulary, and whether the anchor predicts.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from services.common.model import ModelError, load_block, load_target
from services.common.model.drafters import read_drafter_spec
from services.common.model.drafters.context import open_context
from services.common.model.files.manifest import write_manifest
from tests.support.tiny_checkpoints import DRAFTERS, TinyPair
from tests.unit.common.model.plain_kinds import PLAIN
from tests.unit.common.model.test_drafter_kinds import ANCHORS, SHAPE, Served, made

OUTER = (
    "block_size", "mask_token_id", "markov_rank", "markov_head_type", "enable_confidence_head",
    "confidence_head_with_markov", "conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k",
)  # fmt: skip
LEFT_OUT = (*OUTER, "target_layer_ids", "num_target_layers", "architectures", "num_anchors")
TRAINING = {
    "architectures": ["Speculator"], "speculators_version": "0.9.0", "max_anchors": 512, "tie_word_embeddings": False,
    "transformers_version": "5.24.0", "target_hidden_size": SHAPE.hidden,
    "speculators_config": {"algorithm": "x", "verifier": {"name_or_path": "y"}},
}  # fmt: skip


def rewritten(pair: TinyPair, folder: Path, kind: str, **changes: Any) -> TinyPair:
    """The same pair with the drafter's config.json as the library writes it."""
    shutil.copytree(pair.target, folder / "target")
    shutil.copytree(pair.drafter, folder / "drafter")
    config = json.loads((pair.drafter / "config.json").read_text())
    flat = config | config.pop("dflash_config", {})
    layers = {name: value for name, value in config.items() if name not in LEFT_OUT}
    outer = {name: flat[name] for name in OUTER if name in flat}
    outer |= {"speculators_model_type": kind, "transformer_layer_config": layers}
    outer |= {"aux_hidden_state_layer_ids": [tap + 1 for tap in flat["target_layer_ids"]]}
    told = {name: value for name, value in (TRAINING | outer | changes).items() if value is not None}
    (folder / "drafter/config.json").write_text(json.dumps(told))
    write_manifest(folder / "drafter")
    return TinyPair(folder / "target", folder / "drafter")


@pytest.fixture(params=sorted(DRAFTERS))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_a_file_of_the_library_drafts_as_its_twin(kind: str, tmp_path: Path) -> None:
    pair = made(tmp_path / "own", kind)
    anchored = kind == "dspark"
    theirs = rewritten(pair, tmp_path / "theirs", kind, sample_from_anchor=anchored)
    assert Served(theirs).propose() == Served(pair).propose()


def test_without_a_word_the_anchor_does_not_predict(tmp_path: Path) -> None:
    pair = made(tmp_path / "own", "dspark")
    theirs = rewritten(pair, tmp_path / "theirs", "dspark")
    spec = read_drafter_spec(theirs.drafter)
    assert (spec.anchor_predicts, spec.most_drafts) == (False, SHAPE.block_size - 1)
    served, plain = Served(theirs), PLAIN["dspark"](pair.drafter, torch.float64)
    for drafts, features, anchor in zip(served.propose(), served.features, ANCHORS, strict=True):
        hidden = plain.hidden(features, anchor, served.target.embed_VD, SHAPE.block_size)
        assert drafts == plain.drafts(hidden[1:], anchor, served.target.lm_head_VD)


def test_a_setting_says_what_a_file_does_not(tmp_path: Path) -> None:
    """Both halves have the layout that is asked for."""
    pair = made(tmp_path / "own", "dspark")
    theirs, target = rewritten(pair, tmp_path / "theirs", "dspark"), load_target(pair.target)
    for anchored, drafts in ((None, SHAPE.block_size - 1), (True, SHAPE.block_size), (False, SHAPE.block_size - 1)):
        block, context = (
            load_block(theirs.drafter, anchored=anchored),
            open_context(theirs.drafter, target, False, anchored),
        )
        assert block.spec.most_drafts == drafts
        assert context.most_rows == 1 + drafts
    with pytest.raises(ModelError, match="sample_from_anchor cannot be said of dflash2, only of dflash and dspark"):
        read_drafter_spec(made(tmp_path / "other", "dflash2").drafter, anchored=True)


@pytest.mark.parametrize("kind", ["dflash", "dspark"])
def test_a_part_of_the_vocabulary_is_mapped_to_the_targets(kind: str, tmp_path: Path) -> None:
    """The head scores every third token; what it chooses, and what the next choice depends on, is the target's."""
    pair = made(tmp_path / "own", kind)
    ids = torch.arange(0, SHAPE.vocab, 3)
    theirs = rewritten(pair, tmp_path / "theirs", kind, sample_from_anchor=kind == "dspark", draft_vocab_size=len(ids))
    head = load_file(pair.target / "model.safetensors")["lm_head.weight"]
    tensors = load_file(theirs.drafter / "model.safetensors")
    if kind == "dspark":
        tensors["markov_head.markov_w2.weight"] = tensors["markov_head.markov_w2.weight"][ids].contiguous()
    added = {"lm_head.weight": head[ids].contiguous(), "d2t": ids - torch.arange(len(ids)),
             "t2d": torch.zeros(SHAPE.vocab, dtype=torch.bool)}  # fmt: skip
    save_file(tensors | added, theirs.drafter / "model.safetensors", metadata={"format": "pt"})
    write_manifest(theirs.drafter)
    served = Served(theirs)
    got = served.propose()
    assert all(token % 3 == 0 for drafts in got for token in drafts)
    plain = PLAIN[kind](pair.drafter, torch.float64)
    for drafts, features, anchor in zip(got, served.features, ANCHORS, strict=True):
        hidden = plain.hidden(features, anchor, served.target.embed_VD, SHAPE.block_size)
        rows = hidden if kind == "dspark" else hidden[1:]
        before = anchor
        for row, token in zip(rows, drafts, strict=True):
            scores = served.target.lm_head_VD @ row
            if kind == "dspark":
                weights = [plain.weights[f"markov_head.markov_w{index}.weight"] for index in (1, 2)]
                scores = scores + weights[1] @ weights[0][before]
            assert token == int(ids[scores[ids].argmax()])
            before = token


@pytest.mark.parametrize(
    ("d2t", "sentence"),
    [(torch.tensor([0, 0, 400]), "names tokens outside of 320"), (torch.tensor([1, 0, 0]), "names a token twice")],
)
def test_a_map_that_is_none_is_refused(d2t: torch.Tensor, sentence: str, tmp_path: Path) -> None:
    pair = made(tmp_path / "own", "dflash")
    theirs = rewritten(pair, tmp_path / "theirs", "dflash", draft_vocab_size=3)
    tensors = load_file(theirs.drafter / "model.safetensors") | {"d2t": d2t, "lm_head.weight": torch.ones(3, 32)}
    save_file(tensors, theirs.drafter / "model.safetensors", metadata={"format": "pt"})
    write_manifest(theirs.drafter)
    with pytest.raises(ModelError, match=sentence):
        Served(theirs)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"speculators_model_type": "peagle"}, "speculators_model_type: 'peagle' is not supported, only .*dflash2"),
        ({"aux_hidden_state_layer_ids": [0, 1]}, "aux_hidden_state_layer_ids: must be numbers of layers from 1 on"),
        ({"aux_hidden_state_layer_ids": []}, "aux_hidden_state_layer_ids: must be numbers of layers from 1 on"),
        ({"aux_hidden_state_layer_ids": None}, "aux_hidden_state_layer_ids: is missing"),
        ({"transformer_layer_config": None}, "transformer_layer_config: is missing"),
        ({"projector_type": "domino"}, "dflash_config.projector_type: 'domino' is not supported"),
        ({"shift_label": True}, "shift_label: true is not supported"),
        ({"target_hidden_size": 33}, "target_hidden_size: 33 is not supported"),
        ({"norm_output": True}, "norm_output: is not a supported key"),
        ({"draft_vocab_size": 321}, "draft_vocab_size: must be in"),
    ],
)
def test_what_is_not_served_is_refused_by_its_key(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    pair = made(tmp_path / "own", "dflash")
    theirs = rewritten(pair, tmp_path / "theirs", "dflash", **changes)
    with pytest.raises(ModelError, match=rf"config\.json: {sentence}"):
        read_drafter_spec(theirs.drafter)


def test_a_layer_that_the_target_lacks_is_told(tmp_path: Path) -> None:
    pair = made(tmp_path / "own", "dflash")
    theirs = rewritten(pair, tmp_path / "theirs", "dflash", aux_hidden_state_layer_ids=[1, 2, SHAPE.layers + 1])
    with pytest.raises(ModelError, match="it reads layer 4, the target has 4, counted from 0"):
        Served(theirs)
