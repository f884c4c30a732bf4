"""Every kind of chain against a plain implementation of its own; its context in pieces; what it refuses."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from services.common.kernels.span_attention import plan_context
from services.common.model import ModelError, load_chain, load_target
from services.common.model.drafters import KINDS, chain, read_any_spec
from services.common.model.drafters.chain_context import ChainContext
from services.common.model.drafters.context import open_context
from services.common.model.drafters.coupling import Coupling
from services.common.model.drafters.spec import ChainSpec
from services.common.model.files.manifest import write_manifest
from services.common.model.states.draft_context import Chained
from services.common.model.states.seeds import Seeds
from services.common.model.states.states import Part, Rows
from tests.support.tiny_chains import CHAINS
from tests.support.tiny_checkpoints import DRAFTERS, TinyPair, TinyShape
from tests.unit.common.model.pairs import BLOCK_SIZE, forward, ids_like, poisoned, span_at, tables
from tests.unit.common.model.plain_chains import PLAIN_CHAINS, PlainChain

SHAPE = TinyShape(tied=False)
LENGTHS, COUNT = [5, 21, 1], 4
CLOSE: dict[str, Any] = {"atol": 1e-11, "rtol": 1e-9}


@pytest.fixture(params=sorted(PLAIN_CHAINS))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def pair(kind: str, tmp_path: Path) -> TinyPair:
    return CHAINS[kind](tmp_path, 3, SHAPE)


def plain_of(kind: str) -> type[PlainChain]:
    return PLAIN_CHAINS[kind.partition("-")[0]]


class Written:
    """A pair, three texts, and the context of all but their last tokens."""

    def __init__(self, pair: TinyPair, pieces: random.Random | None = None) -> None:
        self.target, self.chain = load_target(pair.target, torch.float64), load_chain(pair.drafter, torch.float64)
        context = open_context(pair.drafter, self.target)
        assert isinstance(context, ChainContext)
        self.context, self.table = context, tables([4, 8, 6], 10)
        self.texts = [ids_like(1, length + 1, seed=row)[0] for row, length in enumerate(LENGTHS)]
        self.features = [self._features(text[:-1]) for text in self.texts]
        self.seeds = Seeds(40, BLOCK_SIZE, torch.full((4, SHAPE.hidden), float("nan"), dtype=torch.float64))
        self.kv = poisoned(torch.empty(context.kv_shape(40, BLOCK_SIZE), dtype=torch.float64))
        for row, length in enumerate(LENGTHS):
            self.seeds.begin(row, None)
            ends = [length] if pieces is None else sorted({pieces.randint(1, length) for _ in range(6)} | {length})
            for start, end in zip([0, *ends], ends, strict=False):
                self.write(row, start, end)

    def _features(self, ids_T: Tensor) -> Tensor:
        states = self.target.new_states(40, BLOCK_SIZE)
        rows = span_at(tables([20], 20), [0], len(ids_T))
        return forward(self.target, ids_T[None], rows, states, self.context.taps)[1][0]

    def write(self, row: int, start: int, end: int, rejected: int = 0) -> None:
        """Rows of a text as a round has them; those that are rejected have wrong tokens and features."""
        span = span_at(self.table[row : row + 1], [start], end - start + rejected).parts[0].span
        rows = Rows(Part(span, torch.tensor([row])))
        wrong = torch.ones(rejected, self.features[row].shape[1], dtype=torch.float64)
        ids_T = torch.cat((self.texts[row][start:end], torch.full((rejected,), 7)))
        features_TF = torch.cat((self.features[row][start:end], wrong))
        states_TD = self.context.write(features_TF, rows, self.kv, Chained(ids_T, self.seeds))
        self.seeds.commit(states_TD, torch.tensor([row]), torch.tensor([end - start]))

    def held(self, row: int) -> Tensor:
        """Keys and values of a text's positions."""
        held: Tensor = self.kv[0][:, self.table[row].long()].flatten(1, 2)[:, : LENGTHS[row]]
        return held

    def holds_what(self, other: "Written", *rows: int) -> None:
        """Compares context, seeds and drafts of rows, all by default."""
        for row in rows or range(len(LENGTHS)):
            torch.testing.assert_close(self.held(row), other.held(row), **CLOSE)
            torch.testing.assert_close(self.seeds.slot_SD[row], other.seeds.slot_SD[row], **CLOSE)
            assert self.propose()[row] == other.propose()[row]

    def propose(self, count: int = COUNT, coupling: Coupling | None = None) -> list[list[int]]:
        span = plan_context(self.table, torch.tensor(LENGTHS), count, BLOCK_SIZE)
        seated = self.chain.seat(self.target.embed_VD, self.target.lm_head_VD)
        anchor_B = torch.stack([text[-1] for text in self.texts])
        seed_BD = self.seeds.slot_SD[: len(LENGTHS)]
        drafts: list[list[int]] = self.chain.propose(
            anchor_B, seed_BD, span, self.kv, *seated, coupling=coupling
        ).tolist()
        return drafts


def test_every_kind_has_tests() -> None:
    assert set(KINDS) == set(DRAFTERS) | set(PLAIN_CHAINS)
    assert {name.partition("-")[0] for name in CHAINS} == set(PLAIN_CHAINS)


@pytest.mark.parametrize("kind", sorted(CHAINS))
def test_drafts_and_hidden_states_equal_the_plain_implementation(
    kind: str, pair: TinyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every layout, too."""
    written, plain, seen = Written(pair), plain_of(kind)(pair.drafter, torch.float64), []
    choose = chain._best

    def noted(hidden_BD: Tensor, *rest: Any) -> Tensor:
        seen.append(hidden_BD)
        return choose(hidden_BD, *rest)

    monkeypatch.setattr(chain, "_best", noted)
    got = written.propose()
    for row, (text, features) in enumerate(zip(written.texts, written.features, strict=True)):
        tables_of = written.target.embed_VD, written.target.lm_head_VD
        drafts, hidden = plain.drafts(text.tolist(), features, *tables_of, COUNT)
        assert got[row] == drafts
        torch.testing.assert_close(torch.stack([step[row] for step in seen]), torch.stack(hidden), **CLOSE)
    assert len({tuple(drafts) for drafts in got}) == len(got), "texts of their own"


def test_fewer_drafts_are_the_first_of_all(pair: TinyPair) -> None:
    written = Written(pair)
    whole = written.propose(7)
    assert [written.propose(count) for count in range(1, 8)] == [
        [drafts[:count] for drafts in whole] for count in range(1, 8)
    ]


def test_rows_in_pieces_leave_what_rows_at_once_leave(pair: TinyPair) -> None:
    whole = Written(pair)
    for seed in range(2):
        Written(pair, random.Random(seed)).holds_what(whole)


def test_rejected_rows_are_written_again(pair: TinyPair) -> None:
    """Of rows that end blocks too: the block's seed is that of the row that was committed."""
    whole, written = Written(pair), Written(pair)
    written.seeds.begin(1, None)
    for start, end in ((0, 9), (9, 10), (10, 14), (14, 21)):
        written.write(1, start, end, rejected=5)
    written.holds_what(whole)
    for last in (3, 7, 11, 15, 19):
        block = int(written.table[1, last // BLOCK_SIZE])
        torch.testing.assert_close(written.seeds.block_ND[block], whole.seeds.block_ND[block], **CLOSE)


def test_a_request_goes_on_behind_a_cached_block(pair: TinyPair) -> None:
    whole, written, held = Written(pair), Written(pair), 4
    written.kv[:, :, written.table[1, held:].long()] = float("nan")
    written.seeds.begin(1, int(written.table[1, held - 1]))
    written.write(1, held * BLOCK_SIZE, LENGTHS[1])
    written.holds_what(whole)


def test_segments_of_a_prompt_may_lie_in_one_forward(pair: TinyPair) -> None:
    """In any order, between those of another, with rows of padding behind each."""
    written, whole = Written(pair), Written(pair)
    written.kv.fill_(float("nan"))
    slots, starts, valid = [1, 0, 1, 1, 3], [16, 0, 0, 8, 0], [5, 5, 8, 8, 0]
    for slot in (0, 1):
        written.seeds.begin(slot, None)
    table = torch.stack([*(written.table[slot] for slot in slots[:-1]), torch.zeros_like(written.table[0])])
    part = span_at(table, starts, 8, valid).parts[0]
    rows = Rows(Part(part.span, torch.tensor(slots), torch.tensor(valid)))
    ids_BW, features_BWF = torch.full((5, 8), 9), torch.ones(5, 8, written.features[0].shape[1], dtype=torch.float64)
    for index, (slot, start, count) in enumerate(zip(slots, starts, valid, strict=True)):
        if count:
            ids_BW[index, :count] = written.texts[slot][start : start + count]
            features_BWF[index, :count] = written.features[slot][start : start + count]
    chained = Chained(ids_BW.flatten(), written.seeds)
    written.seeds.fill(written.context.write(features_BWF.flatten(0, 1), rows, written.kv, chained), rows)
    written.holds_what(whole, 0, 1)


def test_drafts_follow_the_noise_of_rows_that_sample(pair: TinyPair) -> None:
    written = Written(pair)
    greedy = written.propose()
    noise = torch.zeros(3, COUNT, SHAPE.vocab, dtype=torch.float64)
    favoured = torch.tensor([[5, 2, 8, 11], [5, 2, 8, 11], [20, 17, 2, 5]])  # all kinds score these
    noise.scatter_(2, favoured[..., None], 1e4)
    weights = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    got = written.propose(coupling=Coupling(noise, torch.ones(3, dtype=torch.float64), weights))
    assert got == [favoured[0].tolist(), greedy[1], favoured[2].tolist()]


def test_eight_bits_draft_nearly_alike(pair: TinyPair) -> None:
    written = Written(pair)
    whole = written.propose(1)
    written.chain = load_chain(pair.drafter, torch.float64, int8=True)
    assert sum(a == b for a, b in zip(written.propose(1), whole, strict=True)) >= 2


def changed(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    changes = json.loads(path.read_text()) | values
    path.write_text(json.dumps({name: value for name, value in changes.items() if value is not None}))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"mtp_num_hidden_layers": 2}, "mtp_num_hidden_layers: only one layer is supported, is 2"),
        ({"mtp_use_dedicated_embeddings": True}, "mtp_use_dedicated_embeddings: true is not supported"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config: a drafting head in a packed file"),
        ({"architectures": ["Qwen3_5MoeForCausalLM"]}, "architectures: .* a drafting head with experts is not"),
        ({"architectures": ["DeepseekV3ForCausalLM"]}, "architectures: .* drafting heads of this family are not"),
    ],
)
def test_heads_that_are_not_served_are_refused(values: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    pair = CHAINS["mtp"](tmp_path, 3, SHAPE)
    changed(pair.drafter, **values)
    with pytest.raises(ModelError, match=rf"config\.json: {sentence}"):
        read_any_spec(pair.drafter)


def test_a_file_without_a_head_is_refused(tmp_path: Path) -> None:
    pair = CHAINS["mtp"](tmp_path, 3, SHAPE)
    path = pair.drafter / "model.safetensors"
    save_file({name: one for name, one in load_file(path).items() if not name.startswith("mtp.")}, path)
    write_manifest(pair.drafter)
    with pytest.raises(ModelError, match=r"has no drafting head \(mtp\.\*\), which copies often leave out"):
        load_chain(pair.drafter)


def test_the_published_layout_is_read_too(tmp_path: Path) -> None:
    """A model of text and images, whose keys stand in `text_config` and whose tensors have other names."""
    pair = CHAINS["mtp"](tmp_path, 3, SHAPE, family="qwen3_5")
    spec = read_any_spec(pair.drafter)
    assert isinstance(spec, ChainSpec)
    assert (spec.kind, spec.target_layer_ids, spec.num_target_layers) == ("mtp", (3,), 4)
    written, plain = Written(pair), PLAIN_CHAINS["mtp"](pair.drafter, torch.float64)
    drafts, _ = plain.drafts(
        written.texts[1].tolist(), written.features[1], written.target.embed_VD, written.target.lm_head_VD, COUNT
    )
    assert written.propose()[1] == drafts
