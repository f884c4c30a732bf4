"""Every kind of drafter against a plain implementation of its own, and what each refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from services.common.model import ModelError, load_block, load_target
from services.common.model.drafters import KINDS, read_drafter_spec
from services.common.model.drafters.block import DraftBlock
from services.common.model.drafters.context import BlockContext, load_context
from services.common.model.drafters.coupling import Coupling
from services.common.model.files.manifest import write_manifest
from tests.support.tiny_checkpoints import DRAFTERS, TinyPair, TinyShape, write_configs, write_tiny
from tests.unit.common.model.pairs import block_ids, context_at, context_kv, forward, ids_like, span_at, tables
from tests.unit.common.model.plain_kinds import PLAIN, PlainDspark

SHAPE = TinyShape(tied=False)
LENGTHS, ANCHORS = [5, 21, 12], [9, 80, 33]


@pytest.fixture(params=sorted(DRAFTERS))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def made(folder: Path, kind: str, **changes: Any) -> TinyPair:
    return write_tiny(folder, 3, SHAPE, std=0.25, drafter={**DRAFTERS[kind], **changes})


class Served:
    """A pair whose context holds three texts."""

    def __init__(self, pair: TinyPair, dtype: torch.dtype = torch.float64) -> None:
        self.target = load_target(pair.target, dtype)
        self.context: BlockContext = load_context(pair.drafter, self.target)
        self.block: DraftBlock = load_block(pair.drafter, dtype, confident=True)
        self.kv = context_kv(self.context)
        self.table = tables([4, 8, 6], 10)
        self.features = [self._write(row, length) for row, length in enumerate(LENGTHS)]

    def _write(self, row: int, length: int) -> torch.Tensor:
        states = self.target.new_states(40, 4)
        rows = span_at(tables([20], 20), [0], length)
        features = forward(self.target, ids_like(1, length, seed=row), rows, states, self.context.taps)[1]
        self.context.write(features.flatten(0, 1), span_at(self.table[row : row + 1], [0], length), self.kv)
        return features[0]

    def propose(self, count: int | None = None, coupling: Coupling | None = None) -> list[list[int]]:
        block = self.block
        ids, rows = block_ids(block, torch.tensor(ANCHORS)), context_at(self.table, LENGTHS, block.spec.block_size)
        tables_of = block.seat(self.target.embed_VD, self.target.lm_head_VD)
        drafts: list[list[int]] = block.propose(ids, rows, self.kv, *tables_of, count, coupling).tolist()
        return drafts


def test_the_suite_covers_every_kind_of_block() -> None:
    assert {name for name, kind in KINDS.items() if hasattr(kind, "read_stack")} == set(DRAFTERS) == set(PLAIN)


def test_drafts_equal_the_plain_implementation(kind: str, tmp_path: Path) -> None:
    pair = made(tmp_path, kind)
    served, plain = Served(pair), PLAIN[kind](pair.drafter, torch.float64)
    expected = []
    for features, anchor in zip(served.features, ANCHORS, strict=True):
        hidden = plain.hidden(features, anchor, served.target.embed_VD, SHAPE.block_size)
        expected.append(plain.drafts(hidden, anchor, served.target.lm_head_VD))
    got = served.propose()
    assert got == expected
    assert len(got[0]) == served.block.spec.most_drafts
    assert served.context.most_rows == 1 + len(got[0])
    assert len({tuple(drafts) for drafts in got}) == len(got), "texts of their own"


def test_hidden_states_equal_the_plain_implementation(kind: str, tmp_path: Path) -> None:
    pair = made(tmp_path, kind)
    served, plain = Served(pair), PLAIN[kind](pair.drafter, torch.float64)
    rows = context_at(served.table, LENGTHS, SHAPE.block_size)
    got = served.block.hidden(block_ids(served.block, torch.tensor(ANCHORS)), rows, served.kv, served.target.embed_VD)
    for row, (features, anchor) in enumerate(zip(served.features, ANCHORS, strict=True)):
        expected = plain.hidden(features, anchor, served.target.embed_VD, SHAPE.block_size)
        torch.testing.assert_close(got[row], expected, atol=1e-10, rtol=1e-10)


def test_candidates_are_as_likely_together_as_a_checkpoint_is_sure(tmp_path: Path) -> None:
    pair = made(tmp_path, "dspark")
    served, plain = Served(pair), PlainDspark(pair.drafter, torch.float64)
    block, rows = served.block, context_at(served.table, LENGTHS, SHAPE.block_size)
    tables_of = block.seat(served.target.embed_VD, served.target.lm_head_VD)
    ranked = block.rank(block_ids(block, torch.tensor(ANCHORS)), rows, served.kv, *tables_of)
    chances_BKP = ranked.scores_BKPC.exp().sum(-1)
    for row, (features, anchor) in enumerate(zip(served.features, ANCHORS, strict=True)):
        hidden = plain.hidden(features, anchor, served.target.embed_VD, SHAPE.block_size)
        assert chances_BKP[row, 0].tolist() == pytest.approx([plain.confidence(hidden[0], anchor)] * 8)
        for position in range(1, len(hidden)):
            before = ranked.ids_BKC[row, position - 1].tolist()
            expected = [plain.confidence(hidden[position], token) for token in before]
            assert chances_BKP[row, position].tolist() == pytest.approx(expected)
            assert max(expected) - min(expected) > 1e-3


def test_a_checkpoints_confidence_counts_where_that_is_asked_for(tmp_path: Path) -> None:
    pair = made(tmp_path, "dspark")
    served = Served(pair)
    drafts, served.block = served.propose(), load_block(pair.drafter, torch.float64)
    assert served.propose() == drafts
    rows = context_at(served.table, LENGTHS, SHAPE.block_size)
    tables_of = served.block.seat(served.target.embed_VD, served.target.lm_head_VD)
    ranked = served.block.rank(block_ids(served.block, torch.tensor(ANCHORS)), rows, served.kv, *tables_of)
    chances_BKP = ranked.scores_BKPC.exp().sum(-1)
    torch.testing.assert_close(chances_BKP, torch.ones_like(chances_BKP))


def test_fewer_drafts_are_the_first_of_all(kind: str, tmp_path: Path) -> None:
    served = Served(made(tmp_path, kind))
    whole = served.propose()
    for count in range(1, len(whole[0]) + 1):
        assert served.propose(count) == [drafts[:count] for drafts in whole]


def test_drafts_follow_the_noise_of_rows_that_sample(kind: str, tmp_path: Path) -> None:
    """A row of weight 0 drafts as without noise; noise that favours one token makes the others draft it."""
    served = Served(made(tmp_path, kind))
    greedy, count = served.propose(), served.block.spec.most_drafts
    noise = torch.zeros(3, count, SHAPE.vocab, dtype=torch.float64)
    favoured = ids_like(3, count, vocab=SHAPE.vocab, seed=8)
    noise.scatter_(2, favoured[..., None], 1e4)
    weights = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    got = served.propose(coupling=Coupling(noise, torch.ones(3, dtype=torch.float64), weights))
    assert got == [favoured[0].tolist(), greedy[1], favoured[2].tolist()]


def test_the_two_stacks_agree(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks by operators, as on a GPU, and blocks by TorchScript."""
    pair = made(tmp_path, kind)
    served = Served(pair)
    host = served.propose()
    for module in ("services.common.model.stack", "services.common.model.drafters.dflash2.stack"):
        monkeypatch.setattr(f"{module}.on_kernel", lambda tensor: True)
    served.block = load_block(pair.drafter, torch.float64)
    assert served.propose() == host


def test_a_later_kind_without_its_parts_is_the_first(tmp_path: Path) -> None:
    """Convolutions that pass rows on and codebooks of zeros leave the first generation, number for number."""
    pair = made(tmp_path / "2", "dflash2")
    tensors = load_file(pair.drafter / "model.safetensors")
    for name in tensors:
        if name.endswith(("kernel_projection.weight", "codebook")):
            tensors[name].zero_()
        elif name.endswith("base_kernel"):
            tensors[name].zero_()
            tensors[name][:, 0] = 1.0
    save_file(tensors, pair.drafter / "model.safetensors", metadata={"format": "pt"})
    write_manifest(pair.drafter)
    first = write_tiny(tmp_path / "1", 3, SHAPE, std=0.25)
    shared = {name: tensors[name] for name in load_file(first.drafter / "model.safetensors")}
    save_file(shared, first.drafter / "model.safetensors", metadata={"format": "pt"})
    write_manifest(first.drafter)
    assert Served(pair).propose() == Served(first).propose()


def test_a_files_own_tables_are_used_where_they_differ(tmp_path: Path) -> None:
    pair = made(tmp_path, "dspark")
    without = Served(pair).propose()
    target = load_file(pair.target / "model.safetensors")
    tensors = load_file(pair.drafter / "model.safetensors")
    embed, head = target["model.embed_tokens.weight"], target["lm_head.weight"]

    def drafts(**own: torch.Tensor) -> list[list[int]]:
        save_file(tensors | {name.replace("__", "."): table for name, table in own.items()},
                  pair.drafter / "model.safetensors", metadata={"format": "pt"})  # fmt: skip
        write_manifest(pair.drafter)
        return Served(pair).propose()

    same = drafts(embed_tokens__weight=embed.clone(), lm_head__weight=head.clone())
    other = drafts(lm_head__weight=head.roll(1, 0).contiguous())
    assert same == without
    assert other != without


def test_a_bias_over_few_tokens_chooses_as_over_all_where_the_choice_is_among_them(tmp_path: Path) -> None:
    """With and without noise; of a part of the vocabulary it stays as published."""
    pair, count = made(tmp_path / "own", "dspark"), SHAPE.block_size
    served = Served(pair)
    generator = torch.Generator().manual_seed(4)
    noise = torch.randn(3, count, SHAPE.vocab, generator=generator, dtype=torch.float64)
    ones = torch.ones(3, dtype=torch.float64)
    for coupling in (None, Coupling(noise, 1.4 * ones, ones)):
        served.block = load_block(pair.drafter, torch.float64)
        whole = served.propose(coupling=coupling)
        served.block = load_block(pair.drafter, torch.float64, candidates=SHAPE.vocab)
        assert served.propose(coupling=coupling) == whole
        served.block = load_block(pair.drafter, torch.float64, candidates=1)
        alone = served.propose(coupling=coupling)
        assert alone != whole
        served.block = load_block(pair.drafter, torch.float64, candidates=16)
        shares = [[few == all_ for few, all_ in zip(*both, strict=True)]
                  for both in zip(served.propose(coupling=coupling), whole, strict=True)]  # fmt: skip
        alike = [[few == all_ for few, all_ in zip(*both, strict=True)] for both in zip(alone, whole, strict=True)]
        assert sum(map(sum, shares)) > sum(map(sum, alike))


def test_a_rank_of_zero_is_a_plain_block_whose_anchor_predicts(tmp_path: Path) -> None:
    pair = made(tmp_path, "dspark", markov_rank=0, enable_confidence_head=False, confidence_head_with_markov=False)
    served, plain = Served(pair), PLAIN["dflash"](pair.drafter, torch.float64)
    for drafts, features, anchor in zip(served.propose(), served.features, ANCHORS, strict=True):
        hidden = plain.hidden(features, anchor, served.target.embed_VD, SHAPE.block_size)
        assert drafts == (hidden @ served.target.lm_head_VD.T).argmax(-1).tolist()


@pytest.mark.parametrize(
    ("kind", "changes", "sentence"),
    [
        ("dspark", {"markov_head_type": "gated"}, "markov_head_type: 'gated' is not supported"),
        ("dspark", {"markov_rank": -1}, "markov_rank: must be in"),
        ("dspark", {"markov_rank": 0}, "confidence_head_with_markov: asks for a markov_rank"),
        ("dspark", {"target_layer_ids": [-1, 1]}, "target_layer_ids: must be ids below"),
        ("dspark", {"layer_types": ["sliding_attention"] * 2}, "layer_types: a DSpark drafter with sliding_attention"),
        ("dspark", {"other": 1}, "other: is not a supported key"),
        ("dflash2", {"sample_from_anchor": True}, "sample_from_anchor: true is not supported"),
        ("dflash2", {"draft_vocab_size": 100}, "draft_vocab_size: a selector scores all"),
        ("dflash2", {"dflash_config": {}}, "dflash_config.conv_kernel_size: is missing"),
    ],
)
def test_what_is_not_served_is_refused_by_its_key(
    kind: str, changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    pair = write_configs(tmp_path, SHAPE, drafter={**DRAFTERS[kind], **changes})
    with pytest.raises(ModelError, match=rf"config\.json: {sentence}"):
        read_drafter_spec(pair.drafter)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("conv_group_size", 7, "7 does not divide hidden_size 32"),
        ("selector_top_k", 65, r"must be in \[1, 64\], is 65"),
        ("conv_kernel_size", 0, "must be in"),
        ("attention_sink_bias", True, "True is not supported"),
    ],
)
def test_sizes_of_convolutions_and_selector_must_fit(key: str, value: object, sentence: str, tmp_path: Path) -> None:
    config = json.loads(json.dumps(DRAFTERS["dflash2"]["dflash_config"])) | {key: value}
    pair = write_configs(tmp_path, SHAPE, drafter={**DRAFTERS["dflash2"], "dflash_config": config})
    with pytest.raises(ModelError, match=rf"dflash_config\.{key}: {sentence}"):
        read_drafter_spec(pair.drafter)


def test_a_selector_has_no_more_candidates_than_tokens(tmp_path: Path) -> None:
    pair = write_configs(tmp_path, SHAPE, drafter={**DRAFTERS["dflash2"], "vocab_size": 5})
    with pytest.raises(ModelError, match="6 is more than the vocabulary of 5"):
        read_drafter_spec(pair.drafter)
