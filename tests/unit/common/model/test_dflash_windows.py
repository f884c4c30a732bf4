"""Drafters whose layers slide, or whose embedding and logits are scaled, against the plain implementation."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from services.common.model import DraftBlock, Target
from services.common.model.drafters.context import BlockContext
from services.common.model.drafters.coupling import Coupling
from tests.support.tiny_checkpoints import MASK_ID, TinyShape
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

BLOCK, WINDOW = 8, 10
MIXED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW, "use_sliding_window": True}
SLIDING = MIXED | {"layer_types": ["sliding_attention"] * 2}
NEW_ROPE = {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}
WITHIN: dict[str, Any] = {"mask_token_id": MASK_ID, "target_layer_ids": [0, 1, 2]}
SCALES = {"input_embedding_scale": 5.75, "final_logit_softcapping": 3.0, "output_multiplier": 0.5}
LAYOUTS: dict[str, dict[str, Any]] = {
    "full, the others sliding": MIXED,
    "sliding, not causal": SLIDING | {"is_causal": False},
    "full, causal": {"is_causal": True},
    "causal by dflash_config": SLIDING | {"dflash_config": WITHIN | {"causal": False}, "is_causal": False},
    "new rope": MIXED | NEW_ROPE,
    "scales beside": MIXED | SCALES,
    "scales within": {"dflash_config": WITHIN | SCALES},
}
Drafter = tuple[Target, BlockContext, DraftBlock, PlainDflash]


@pytest.fixture(scope="module", params=list(LAYOUTS))
def drafter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Drafter:
    folder = tmp_path_factory.mktemp("pair")
    pair = load_pair(folder, TinyShape(), torch.float64, drafter=LAYOUTS[request.param])
    return *pair, PlainDflash(folder / "drafter", torch.float64)


def features_of(target: Target, taps: tuple[int, ...], ids: Tensor) -> Tensor:
    return forward(target, ids, span_at(tables([20], 20), [0], ids.shape[1]), target.new_states(40, 4), taps)[1]


def test_rounds_beyond_the_window_with_rejections(drafter: Drafter) -> None:
    """Each round writes a whole span; rejected rows are written again, or never read."""
    target, context, block, plain = drafter
    features, table = features_of(target, context.taps, ids_like(1, 36)), tables([14], 20)
    draft_kv, wrong = context_kv(context), torch.full_like(features[0, :BLOCK], torch.nan)
    length = 6
    context.write(features[0, :length], span_at(table, [0], length), draft_kv)
    for accepted in (0, 3, 7, 1, 5, 6):
        rows = torch.cat((features[0, length : length + accepted + 1], wrong))[:BLOCK]
        context.write(rows, span_at(table, [length], BLOCK), draft_kv)
        length += accepted + 1
        ids, at = block_ids(block, torch.tensor([77])), context_at(table, [length], BLOCK)
        got = block.hidden(ids, at, draft_kv, target.embed_VD)[0]
        expected = plain.hidden(features[0, :length], 77, target.embed_VD, BLOCK)
        torch.testing.assert_close(got, expected, atol=1e-10, rtol=1e-10)
    assert length > 2 * WINDOW


def test_a_batch_within_and_beyond_the_window(drafter: Drafter) -> None:
    target, context, block, plain = drafter
    lengths, anchors, table = [WINDOW - 1, 31, 3, WINDOW], torch.tensor([9, 80, 33, 5]), tables([4, 10, 3, 5], 10)
    draft_kv, expected = context_kv(context), []
    for row, length in enumerate(lengths):
        features = features_of(target, context.taps, ids_like(1, length, seed=row))
        context.write(features[0], span_at(table[row : row + 1], [0], length), draft_kv)
        expected.append(plain.hidden(features[0], int(anchors[row]), target.embed_VD, BLOCK))
    at = context_at(table, lengths, BLOCK)
    got = block.hidden(block_ids(block, anchors), at, draft_kv, target.embed_VD)
    torch.testing.assert_close(got, torch.stack(expected), atol=1e-10, rtol=1e-10)


def test_scores_and_best_tokens_are_those_of_scaled_logits(drafter: Drafter) -> None:
    target, context, block, plain = drafter
    features, table, draft_kv = features_of(target, context.taps, ids_like(1, 23)), tables([9], 20), context_kv(context)
    context.write(features[0], span_at(table, [0], 23), draft_kv)
    at = context_at(table, [23], BLOCK), draft_kv, target.embed_VD, target.lm_head_VD
    hidden = plain.hidden(features[0], 77, target.embed_VD, BLOCK)[1:]
    scores, noise = plain.logits(hidden, target.lm_head_VD), torch.randn(1, BLOCK - 1, 320, dtype=torch.float64)
    ids, one = block_ids(block, torch.tensor([77])), torch.ones(1, dtype=torch.float64)
    assert block.propose(ids, *at)[0].tolist() == scores.argmax(-1).tolist()
    coupled = block.propose(ids, *at, coupling=Coupling(noise, one, one))
    assert coupled[0].tolist() == (scores + noise[0]).argmax(-1).tolist()


@pytest.mark.parametrize(
    "wrong",
    [{"sliding_window": WINDOW + 1}, {"sliding_window": WINDOW - 1}, {"is_causal": False}, {"layer_types": None}],
    ids=["a row more", "a row less", "not causal", "no window"],
)
def test_another_window_shows(wrong: dict[str, Any], tmp_path: Path) -> None:
    """One position of one layer must change the block's output by far, or the tests above would prove little."""
    target, context, _ = load_pair(tmp_path, dtype=torch.float64, drafter=SLIDING)
    plain = PlainDflash(tmp_path / "drafter", torch.float64)
    features = features_of(target, context.taps, ids_like(1, 23))[0]
    right = plain.hidden(features, 7, target.embed_VD, BLOCK)
    plain.config |= wrong
    assert float((plain.hidden(features, 7, target.embed_VD, BLOCK) - right).abs().max()) > 1e-3
