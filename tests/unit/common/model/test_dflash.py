"""Both halves of the drafter against a plain implementation, and a test for each way to get it silently wrong."""

from pathlib import Path
from typing import Any

import pytest
import torch

from services.common.model import DraftBlock, ModelError, Target, load_target
from services.common.model.drafters import block as dflash_block
from services.common.model.drafters.context import BlockContext, load_context
from services.common.model.states.states import Rows
from tests.support.tiny_checkpoints import TinyShape, write_tiny
from tests.unit.common.model.pairs import (
    block_ids,
    context_at,
    context_kv,
    forward,
    ids_like,
    load_pair,
    span_at,
    tables,
)
from tests.unit.common.model.plain_dflash import PlainDflash

BLOCK = 8
Pair = tuple[Target, BlockContext, DraftBlock, PlainDflash]


@pytest.fixture(scope="module", params=[TinyShape(), TinyShape(tied=False, heads=6, kv_heads=3, draft_layers=3)])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("pair")
    return *load_pair(folder, request.param, torch.float64), PlainDflash(folder / "drafter", torch.float64)


def features_of(target: Target, taps: tuple[int, ...], ids: torch.Tensor) -> torch.Tensor:
    rows = span_at(tables([20], 20), [0], ids.shape[1])
    return forward(target, ids, rows, target.new_states(40, 4), taps)[1]


def test_block_equals_the_plain_implementation(pair: Pair) -> None:
    target, context, block, plain = pair
    ids, table = ids_like(1, 23), tables([9], 20)
    features, draft_kv = features_of(target, context.taps, ids), context_kv(context)
    context.write(features.flatten(0, 1), span_at(table, [0], 23), draft_kv)
    got = block.hidden(block_ids(block, torch.tensor([77])), context_at(table, [23], BLOCK), draft_kv, target.embed_VD)
    expected = plain.hidden(features[0], 77, target.embed_VD, BLOCK)
    torch.testing.assert_close(got[0], expected, atol=1e-10, rtol=1e-10)
    tokens = block.propose(
        block_ids(block, torch.tensor([77])),
        context_at(table, [23], BLOCK),
        draft_kv,
        target.embed_VD,
        target.lm_head_VD,
    )
    assert tokens[0].tolist() == (expected[1:] @ target.lm_head_VD.T).argmax(-1).tolist()


def test_context_written_in_pieces_and_a_batch_equal_one_at_a_time(pair: Pair) -> None:
    target, context, block, plain = pair
    lengths, anchors, table = [5, 21, 12], torch.tensor([9, 80, 33]), tables([4, 8, 6], 10)
    draft_kv, expected = context_kv(context), []
    for row, length in enumerate(lengths):
        features = features_of(target, context.taps, ids_like(1, length, seed=row))
        for start in range(0, length, 4):
            piece = features[:, start : start + 4]
            context.write(piece.flatten(0, 1), span_at(table[row : row + 1], [start], piece.shape[1]), draft_kv)
        expected.append(plain.hidden(features[0], int(anchors[row]), target.embed_VD, BLOCK))
    got = block.hidden(block_ids(block, anchors), context_at(table, lengths, BLOCK), draft_kv, target.embed_VD)
    torch.testing.assert_close(got, torch.stack(expected), atol=1e-10, rtol=1e-10)


def test_rejected_context_rows_and_stale_blocks_never_matter(pair: Pair) -> None:
    target, context, block, plain = pair
    ids, table = ids_like(1, 18), tables([9], 20)
    features, draft_kv = features_of(target, context.taps, ids), context_kv(context)
    context.write(features.flatten(0, 1), span_at(table, [0], 18), draft_kv)
    context.write(torch.full_like(features[:, :6], float("nan")).flatten(0, 1), span_at(table, [12], 6), draft_kv)
    got = block.hidden(block_ids(block, torch.tensor([4])), context_at(table, [12], BLOCK), draft_kv, target.embed_VD)
    torch.testing.assert_close(
        got[0], plain.hidden(features[0, :12], 4, target.embed_VD, BLOCK), atol=1e-10, rtol=1e-10
    )


def test_pad_rows_never_reach_a_row(pair: Pair) -> None:
    target, context, block, plain = pair
    table = torch.cat((tables([6], 10), torch.zeros(1, 10, dtype=torch.int32)))
    features, draft_kv = features_of(target, context.taps, ids_like(1, 14)), context_kv(context)
    context.write(features.flatten(0, 1), span_at(table[:1], [0], 14), draft_kv)
    got = block.hidden(
        block_ids(block, torch.tensor([4, 0])), context_at(table, [14, 0], BLOCK), draft_kv, target.embed_VD
    )
    torch.testing.assert_close(got[0], plain.hidden(features[0], 4, target.embed_VD, BLOCK), atol=1e-10, rtol=1e-10)


class TestPortBugs:
    """Each of these costs acceptance and nothing else, so each must change the block's output by far."""

    @pytest.fixture
    def right(self, pair: Pair) -> torch.Tensor:
        target, context, _, plain = pair
        return plain.hidden(features_of(target, context.taps, ids_like(1, 16))[0], 7, target.embed_VD, BLOCK)

    def served(
        self, pair: Pair, taps: tuple[int, ...] = (), anchor: int = 7, length: int = 16, flipped: bool = False
    ) -> torch.Tensor:
        target, context, block, _ = pair
        table, draft_kv = tables([9], 20), context_kv(context)
        features = features_of(target, taps or context.taps, ids_like(1, 16))
        context.write(features.flatten(0, 1), span_at(table, [0], 16), draft_kv)
        embed = target.embed_VD.flip(0) if flipped else target.embed_VD
        return block.hidden(
            block_ids(block, torch.tensor([anchor])), context_at(table, [length], BLOCK), draft_kv, embed
        )[0]

    def test_as_served_is_right(self, pair: Pair, right: torch.Tensor) -> None:
        torch.testing.assert_close(self.served(pair), right, atol=1e-10, rtol=1e-10)

    @pytest.mark.parametrize(
        "wrong",
        [{"taps": (1, 2, 3)}, {"taps": (2, 1, 0)}, {"anchor": 1}, {"length": 15}, {"flipped": True}],
        ids=["taps one later", "taps out of order", "mask at the anchor", "length off by one", "another embedding"],
    )
    def test_a_wrong_input_shows(self, pair: Pair, right: torch.Tensor, wrong: dict[str, Any]) -> None:
        assert float((self.served(pair, **wrong) - right).abs().max()) > 1e-2

    def test_the_block_is_bidirectional(self, pair: Pair) -> None:
        target, context, _, plain = pair
        features = features_of(target, context.taps, ids_like(1, 16))[0]
        short = plain.hidden(features, 7, target.embed_VD, BLOCK - 1)
        assert float((self.served(pair)[: BLOCK - 1] - short).abs().max()) > 1e-3

    def test_row_j_predicts_its_own_position(self, pair: Pair, right: torch.Tensor) -> None:
        target, context, block, _ = pair
        table, draft_kv = tables([9], 20), context_kv(context)
        context.write(features_of(target, context.taps, ids_like(1, 16))[0], span_at(table, [0], 16), draft_kv)
        span = context_at(table, [16], BLOCK)
        ids = block_ids(block, torch.tensor([7]))
        tokens = block.propose(ids, span, draft_kv, target.embed_VD, target.lm_head_VD, count=3)
        assert tokens[0].tolist() == (right[1:4] @ target.lm_head_VD.T).argmax(-1).tolist()

    def test_rows_that_no_draft_is_read_from_may_end_before_the_last_layer(
        self, pair: Pair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Drafts of many sequences are those of blocks that go on whole."""
        target, context, block, _ = pair
        lengths = [16, 11, 5]
        table, draft_kv = tables([9] * 3, 20), context_kv(context)
        for row, length in enumerate(lengths):
            features = features_of(target, context.taps, ids_like(1, length))[0]
            context.write(features, span_at(table[row : row + 1], [0], length), draft_kv)
        rows, ids = context_at(table, lengths, BLOCK), block_ids(block, torch.tensor([7, 8, 9]))
        whole = block.hidden(ids, rows, draft_kv, target.embed_VD)
        assert whole.shape[1] == BLOCK
        cut = block.hidden(ids, Rows(*rows.parts, ends=range(1, 4)), draft_kv, target.embed_VD)
        torch.testing.assert_close(cut, whole[:, 1:4], atol=1e-12, rtol=1e-12)
        head = target.lm_head_VD
        drafts = [block.propose(ids, rows, draft_kv, target.embed_VD, head, count) for count in (2, None)]
        monkeypatch.setattr(dflash_block, "_MANY_ROWS", 3 * BLOCK)
        found = block.propose(ids, rows, draft_kv, target.embed_VD, head, 2)
        assert found.tolist() == drafts[0].tolist() == drafts[1][:, :2].tolist()


@pytest.mark.parametrize(
    "other", [TinyShape(hidden=48), TinyShape(vocab=330), TinyShape(layers=5)], ids=["width", "vocab", "layers"]
)
def test_a_drafter_of_another_target_is_refused(other: TinyShape, tmp_path: Path) -> None:
    target = load_target(write_tiny(tmp_path / "own").target)
    with pytest.raises(ModelError, match="differs from the target's"):
        load_context(write_tiny(tmp_path / "other", 1, other).drafter, target)


def test_both_halves_share_a_revision(pair: Pair) -> None:
    assert pair[1].revision == pair[2].revision != pair[0].revision
