"""Kinds of drafters that score by the token before: what is trained is what is served, and a start changes nothing."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.training.foreign.corpus import Conversations
from models.training.foreign.folders import begin, form_of, open_learner
from models.training.foreign.frozen import FrozenTarget
from models.training.foreign.kinds import Form, new_drafter
from models.training.foreign.learning import Learner, learn
from models.training.foreign.packing import Packed, pack
from models.training.foreign.publish import publish
from models.training.foreign.replay import Answer, ask, followed, hits_of, walk, walk_trees
from services.common.kernels.prepare_span import seat_block
from services.common.kernels.span_attention import plan_span
from services.common.model import load_block, load_target
from services.common.model.drafters.context import load_context
from services.common.model.drafters.nodes import Candidates
from services.common.model.states.states import Part, Rows
from tests.unit.models.foreign_pair import MASK, OPTIONS, shape_of

FORMS = {"dflash2": Form("dflash2", rank=4, group=8), "dspark": Form("dspark", rank=4)}
BLOCK = 16


def _drawn(target: FrozenTarget, form: Form) -> Learner:
    """Return a learner all of whose weights matter, in the precision that they are published in."""
    learner = Learner(target, shape_of(target), OPTIONS, form)
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in learner.drafter.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=draw))
            weight.copy_(weight.bfloat16().float())
    return learner


def _answer(texts: Conversations, row: int) -> Answer:
    end = int(texts.ends[row])
    return Answer(texts.ids[row, :end].tolist(), int(texts.starts[row]), "all", end)


def _served(folder: Path, drafter: Path, answer: Answer, anchor: int) -> Candidates:
    """Return the candidates of the served drafter behind one anchor."""
    # What is trained counts its own confidence, which is served where it is asked for.
    target, block, count = load_target(folder), load_block(drafter, confident=True), len(answer.ids)
    context = load_context(drafter, target)
    block.reach(64)
    table_1N, slot_1 = torch.arange(1, 5, dtype=torch.int32)[None], torch.zeros(1, dtype=torch.int32)
    rows = Rows(
        Part(plan_span(table_1N, torch.zeros(1, dtype=torch.int64), count, BLOCK), slot_1, torch.tensor([count]))
    )
    draft_kv = torch.zeros(context.kv_shape(5, BLOCK))
    _, features_TF = target.forward(torch.tensor(answer.ids), rows, target.new_states(5, BLOCK), context.taps)
    context.write(features_TF, rows, draft_kv)
    ids_BW, span = seat_block(
        slot_1, torch.tensor([answer.ids[anchor]]), torch.tensor([anchor]), table_1N, block.spec.block_size, BLOCK, MASK
    )
    tables = block.seat(target.embed_VD, None)
    return block.rank(ids_BW, Rows(Part(span, slot_1)), draft_kv, *tables)


@pytest.mark.parametrize("kind", sorted(FORMS))
def test_what_is_trained_is_what_is_served(
    kind: str, folder: Path, target: FrozenTarget, texts: Conversations, tmp_path: Path
) -> None:
    learner, answer = _drawn(target, FORMS[kind]), _answer(texts, 1)
    publish(learner.folded(), tmp_path)
    for anchor in (answer.start, answer.start + 5):
        asked = ask(learner, answer, 8)
        at = slice(anchor - answer.start, anchor - answer.start + 1)
        own = learner.drafter.head.rank(asked.rows[at], learner.table, asked.anchors[at])
        other = _served(folder, tmp_path, answer, anchor)
        assert own.ids_BKC.tolist() == other.ids_BKC.tolist()
        # At the first place, behind the anchor, served scores stand once for each of as many candidates.
        torch.testing.assert_close(own.scores_BKPC, other.scores_BKPC, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("kind", sorted(FORMS))
def test_the_head_learns_and_the_folder_opens(
    kind: str, target: FrozenTarget, texts: Conversations, tmp_path: Path
) -> None:
    packed = pack(texts)
    learner = Learner(
        target, shape_of(target), replace(OPTIONS, steps=6, rows=2, pair_rows=32, pairs_from=0.3), FORMS[kind]
    )
    assert learner.drafter.pairs is not None
    before = {name: weight.clone() for name, weight in learner.drafter.named_parameters()}
    frozen: dict[str, Tensor] = {}

    def report(_step: int, _seconds: float) -> None:
        frozen.update(learner.drafter.named_parameters())

    assert learn(learner, packed, report) == 6
    assert all((frozen[name] != old).any() for name, old in before.items())
    publish(learner.folded(), tmp_path, [4])
    form, shape = form_of(tmp_path, target)
    assert (form, shape) == (FORMS[kind], learner.shape)
    again = open_learner(tmp_path, target, OPTIONS)
    folded = dict(learner.folded().named_parameters())
    assert all(torch.equal(weight, folded[name]) for name, weight in again.drafter.named_parameters())


def test_until_its_share_the_head_of_pairs_rests(target: FrozenTarget, texts: Conversations) -> None:
    packed = pack(texts)
    learner = Learner(target, shape_of(target), replace(OPTIONS, steps=2, rows=2, pairs_from=2.0), FORMS["dflash2"])
    before = {name: weight.clone() for name, weight in learner.drafter.named_parameters()}
    learn(learner, packed, lambda _step, _seconds: None)
    moved = {name for name, weight in learner.drafter.named_parameters() if (weight != before[name]).any()}
    assert "layers.0.mlp_conv.kernel_projection.weight" in moved
    assert not {name for name in moved if "codebook" in name}


@pytest.mark.parametrize("kind", sorted(FORMS))
def test_a_start_drafts_as_the_drafter_that_it_starts_from(
    kind: str, target: FrozenTarget, texts: Conversations, tmp_path: Path
) -> None:
    plain = _drawn(target, Form("dflash"))
    publish(plain.folded(), tmp_path)
    started = Learner(target, shape_of(target), OPTIONS, FORMS[kind])
    begin(started, tmp_path)
    answer = _answer(texts, 3)
    own, other = (ask(each, answer, 8) for each in (plain, started))
    torch.testing.assert_close(own.rows, other.rows)
    assert hits_of(plain, answer, own).tolist() == hits_of(started, answer, other).tolist()
    packed = pack(texts)
    started.measure_scale([packed.rows(torch.arange(4))])
    torch.testing.assert_close(ask(started, answer, 8).rows, own.rows, atol=1e-4, rtol=1e-4)


def test_of_more_layers_the_evenly_spread_ones_are_taken(target: FrozenTarget, tmp_path: Path) -> None:
    deep = Learner(target, replace(shape_of(target), draft_layers=4), OPTIONS)
    publish(deep.folded(), tmp_path)
    short = Learner(target, replace(shape_of(target), draft_layers=2), OPTIONS)
    begin(short, tmp_path)
    own, other = short.drafter.state_dict(), deep.folded().state_dict()
    assert torch.equal(own["layers.1.mlp.up_proj.weight"], other["layers.3.mlp.up_proj.weight"])
    assert torch.equal(own["layers.0.mlp.up_proj.weight"], other["layers.0.mlp.up_proj.weight"])
    with pytest.raises(ValueError, match="fewer than 5"):
        begin(Learner(target, replace(shape_of(target), draft_layers=5), OPTIONS), tmp_path)


def test_convolutions_do_not_leave_their_block(target: FrozenTarget) -> None:
    layer = new_drafter(shape_of(target), FORMS["dflash2"]).layers[0]
    conv = layer.attention_conv
    torch.manual_seed(1)
    with torch.no_grad():
        conv.base_kernel.normal_()  # type: ignore[union-attr, operator]
    rows, offsets = torch.randn(1, 8, 32), torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])
    both, _ = conv.entering(rows, offsets)  # type: ignore[union-attr, operator]
    alone, _ = conv.entering(rows[:, 4:], offsets[4:])  # type: ignore[union-attr, operator]
    torch.testing.assert_close(both[:, 4:], alone)


def test_trees_with_one_candidate_a_place_are_chains(target: FrozenTarget, texts: Conversations) -> None:
    for form in (Form("dflash"), *FORMS.values()):
        learner, answer = _drawn(target, form), _answer(texts, 1)
        asked = ask(learner, answer, 8)
        chain = walk([int(hit.int().cumprod(0).sum()) for hit in hits_of(learner, answer, asked)], answer.start,
                     len(answer.ids))  # fmt: skip
        trees = [walk_trees(learner, answer, asked, nodes) for nodes in (1, 7, 40)]
        assert all(tokens == chain[1] for _, tokens in trees)
        assert trees[2][0] <= trees[0][0]


def test_a_text_is_followed_from_parent_to_child() -> None:
    tokens, parents = [5, 6, 7, 8, 9], [0, 0, 1, 2, 4]
    assert followed(tokens, parents, [6, 8, 9, 1]) == 3
    assert followed(tokens, parents, [5, 7]) == 2
    assert followed(tokens, parents, [7, 8]) == 0
    assert followed([-1], [0], []) == 0


def test_a_text_alone_is_a_row(texts: Conversations) -> None:
    assert Packed.single(texts.ids[0]).answers.all()
