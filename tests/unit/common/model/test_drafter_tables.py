"""Tables that files of drafters carry: embeddings, heads and maps of tokens, of every kind and layout.

What a file means is known without an oracle: a head whose lines are in another order, and the map of that order, draft
what the head itself drafts.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from services.common.model import ModelError
from services.common.model.drafters import read_any_spec
from services.common.model.drafters.spec import DRAFT_TO_TARGET, EMBED, HEAD, ChainSpec
from services.common.preflight.checks import Asked, problems
from tests.support.tiny_checkpoints import TinyPair, TinyShape
from tests.support.tiny_kinds import PAIRS
from tests.unit.common.model.test_chains import Written
from tests.unit.common.model.test_drafter_kinds import Served

SHAPE = TinyShape(tied=False)
KINDS = sorted(set(PAIRS) - {"mtp"})
"""The head in the model's own file shares the model's tables."""
TABLES = (EMBED, HEAD, DRAFT_TO_TARGET, "t2d")
BIAS = "markov_head.markov_w2.weight"
"""Of each entry that is scored, as a head has it."""
Tensors = dict[str, Tensor]


@pytest.fixture(params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> TinyPair:
    """A pair whose drafter scores all tokens, with the target's tables."""
    made = PAIRS[request.param](tmp_path, 3, SHAPE)
    config, tensors = told(made), load_file(made.drafter / "model.safetensors")
    config.pop("draft_vocab_size", None)
    write(made, config, {name: tensor for name, tensor in tensors.items() if name not in TABLES})
    return made


def told(pair: TinyPair) -> dict[str, object]:
    config: dict[str, object] = json.loads((pair.drafter / "config.json").read_text())
    return config


def write(pair: TinyPair, config: Mapping[str, object], tensors: Tensors) -> None:
    (pair.drafter / "manifest.sha256").unlink(missing_ok=True)
    (pair.drafter / "config.json").write_text(json.dumps(config))
    save_file(tensors, pair.drafter / "model.safetensors", metadata={"format": "pt"})


def drafts(pair: TinyPair, own: Tensors, **keys: object) -> list[list[int]]:
    """What a file with other tables, and other keys, drafts."""
    held = {
        name: tensor for name, tensor in load_file(pair.drafter / "model.safetensors").items() if name not in TABLES
    }
    write(pair, told(pair) | keys, held | own)
    chain = isinstance(read_any_spec(pair.drafter), ChainSpec)
    return Written(pair).propose() if chain else Served(pair).propose()


def drawn(lines: int, seed: int) -> Tensor:
    return 0.25 * torch.randn(lines, SHAPE.hidden, generator=torch.Generator().manual_seed(seed))


def test_a_map_of_the_whole_vocabulary_in_its_order_changes_nothing(pair: TinyPair) -> None:
    """Some makers always write one."""
    head, same = {HEAD: drawn(SHAPE.vocab, 1)}, torch.zeros(SHAPE.vocab, dtype=torch.int64)
    both = {DRAFT_TO_TARGET: same, "t2d": torch.ones(SHAPE.vocab, dtype=torch.bool)}
    assert drafts(pair, both) == drafts(pair, {})
    assert drafts(pair, head | both) == drafts(pair, head)


def test_a_map_of_the_whole_vocabulary_in_another_order(pair: TinyPair) -> None:
    head_VD, order = drawn(SHAPE.vocab, 1), torch.randperm(SHAPE.vocab, generator=torch.Generator().manual_seed(2))
    expected = drafts(pair, {HEAD: head_VD})
    own = {HEAD: head_VD[order], DRAFT_TO_TARGET: order - torch.arange(SHAPE.vocab)}
    if read_any_spec(pair.drafter).scores_all:
        with pytest.raises(ModelError, match=r"tensor d2t is of an order of its own, .*: take another drafter"):
            drafts(pair, own)
        return
    if BIAS in (held := load_file(pair.drafter / "model.safetensors")):
        own[BIAS] = held[BIAS][order]
    assert drafts(pair, own) == expected


def test_the_embedding_of_a_tied_file_is_its_head(pair: TinyPair) -> None:
    """Such a file is saved without a head; a head that it has is used."""
    embed, head = {EMBED: drawn(SHAPE.vocab, 1)}, {HEAD: drawn(SHAPE.vocab, 2)}
    if "gating" in told(pair):
        with pytest.raises(ModelError, match="tie_word_embeddings: True is not supported: take"):
            drafts(pair, embed, tie_word_embeddings=True)
        return
    as_head = drafts(pair, embed | {HEAD: embed[EMBED].clone()})
    assert drafts(pair, embed) != as_head
    assert drafts(pair, embed | head) == drafts(pair, embed | head, tie_word_embeddings=True)
    assert drafts(pair, embed, tie_word_embeddings=True) == as_head


def test_wrong_maps_are_refused_before_anything_starts(pair: TinyPair) -> None:
    if read_any_spec(pair.drafter).scores_all:
        return
    count = 100
    own: dict[str, Tensor] = {HEAD: drawn(count, 1)}
    if BIAS in (held := load_file(pair.drafter / "model.safetensors")):
        own[BIAS] = held[BIAS][:count]
    config, right = told(pair) | {"draft_vocab_size": count}, torch.arange(count)
    maps = {
        "none": right, "below": right * 0 - 5, "above": right * 0 + SHAPE.vocab, "twice": -right,
        "of huge numbers": right * 0 + 2**63 - 1, "of fractions": right.double(), "of flags": right > 0,
        "short": right[1:], "empty": right[:0], "of lines": right[None],
    }  # fmt: skip
    found = {}
    for name, far in maps.items():
        where = TinyPair(pair.target, pair.drafter.parent / name)  # headers are kept by path
        where.drafter.mkdir()
        write(where, config, held | own | {DRAFT_TO_TARGET: far.clone()})
        found[name] = next(
            (one.line for one in problems(Asked(str(where.target), str(where.drafter))) if one.fatal), ""
        )
    assert not found.pop("none")
    assert all("tensor d2t" in line and "take another drafter" in line for line in found.values()), found
