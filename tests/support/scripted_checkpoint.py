"""A checkpoint that writes given texts: each token names the next one, whatever came before."""

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer

from services.common.model.families import read_target_spec
from services.common.model.files.checkpoint import SINGLE_FILE
from services.common.model.files.manifest import write_manifest
from services.common.model.weights.weights import model_shapes
from tests.support.tiny_checkpoints import EOS_ID, TinyShape, write_configs, write_tokenizer

BYTES = 258
"""Entries of the tokenizer before those of the scripts."""
CERTAIN = 10.0
"""Weight of the next token; its probability is 1 at every temperature up to 2."""


def write_scripted(folder: Path, template: str, scripts: Mapping[str, tuple[str, ...]], otherwise: str) -> Path:
    """Write the target's folder.

    A script is the tokens that follow its key, each longer than a byte and in one script only. A chat takes the key
    with which its `template` ends; every other text takes the script `otherwise`.
    """
    tokens = [token for key, pieces in scripts.items() for token in (key, *pieces)]
    assert len(tokens) == len({token for token in tokens if len(token) > 1})
    size = BYTES + len(tokens)
    target = write_configs(folder, TinyShape(vocab=size, hidden=size, layers=1, taps=(0,), tied=False)).target
    write_tokenizer(target, BYTES)
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in tokens])
    tokenizer.save(str(target / "tokenizer.json"))
    config = json.loads((target / "tokenizer_config.json").read_text())
    (target / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": template}))
    _write_weights(target, _following(tokenizer.get_vocab(), scripts, otherwise))
    return target


def _following(ids: Mapping[str, int], scripts: Mapping[str, tuple[str, ...]], otherwise: str) -> torch.Tensor:
    """The next token's id of every token."""
    following = torch.full((len(ids),), ids[scripts[otherwise][0]])
    for key, pieces in scripts.items():
        for token, after in pairwise((key, *pieces)):
            following[ids[token]] = ids[after]
        following[ids[pieces[-1]]] = EOS_ID
    return following


def _write_weights(folder: Path, following: torch.Tensor) -> None:
    """Layers add nothing, an embedding is its token's axis, and the head has the next token on that axis."""
    tensors = {
        name: torch.ones(shape) if len(shape) == 1 else torch.zeros(shape)
        for name, shape in model_shapes(read_target_spec(folder)).items()
    }
    tensors["model.embed_tokens.weight"] = torch.eye(len(following))
    tensors["lm_head.weight"][following, torch.arange(len(following))] = CERTAIN
    save_file(tensors, folder / SINGLE_FILE, metadata={"format": "pt"})
    write_manifest(folder)
