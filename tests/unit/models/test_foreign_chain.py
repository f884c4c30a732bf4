"""An EAGLE-3 drafter for somebody else's target: what is trained is what is served, and it learns."""

from dataclasses import replace
from pathlib import Path

import torch

from models.training.foreign.chain import Eagle3
from models.training.foreign.chain_learning import ChainLearner, _asked
from models.training.foreign.corpus import Conversations
from models.training.foreign.frozen import FrozenTarget
from models.training.foreign.heldout import measure
from models.training.foreign.learning import learn
from models.training.foreign.packing import pack
from models.training.foreign.publish import publish, shape_for
from models.training.foreign.replay import Answer
from services.common.kernels.span_attention import plan_context, plan_span
from services.common.model import load_chain, load_target
from services.common.model.drafters.context import open_context
from services.common.model.states.draft_context import Chained
from services.common.model.states.seeds import Seeds
from services.common.model.states.states import Part, Rows
from tests.unit.models.foreign_pair import OPTIONS

BLOCK, COUNT = 16, 4


def _learner(target: FrozenTarget) -> ChainLearner:
    learner = ChainLearner(target, shape_for(target, 1, 8, 0, 3), replace(OPTIONS, steps=5, rows=2))
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in learner.drafter.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=draw))
            weight.copy_(weight.bfloat16().float())
    return learner


def _served(folder: Path, drafter: Path, ids: list[int], count: int) -> list[int]:
    """Drafts behind the last of `ids` as they are served."""
    target, chain, length = load_target(folder), load_chain(drafter), len(ids) - 1
    context = open_context(drafter, target)
    table_1N, slot_1 = torch.arange(1, 5, dtype=torch.int32)[None], torch.zeros(1, dtype=torch.int32)
    span = plan_span(table_1N, torch.zeros(1, dtype=torch.int64), length, BLOCK)
    rows = Rows(Part(span, slot_1, torch.tensor([length])))
    kv, seeds = torch.zeros(context.kv_shape(5, BLOCK)), Seeds(5, BLOCK, torch.zeros(2, context.seed_width))
    ids_T = torch.tensor(ids[:-1])
    _, features_TF = target.forward(ids_T, rows, target.new_states(5, BLOCK), context.taps)
    states_TD = context.write(features_TF, rows, kv, Chained(ids_T, seeds))
    assert states_TD is not None
    seeds.fill(states_TD, rows)
    chain.reach(64)
    drafted = chain.propose(
        torch.tensor(ids[-1:]), seeds.slot_SD[:1], plan_context(table_1N, torch.tensor([length]), count, BLOCK), kv,
        *chain.seat(target.embed_VD, None),
    )  # fmt: skip
    found: list[int] = drafted[0].tolist()
    return found


def test_what_is_trained_is_what_is_served(
    folder: Path, target: FrozenTarget, texts: Conversations, tmp_path: Path
) -> None:
    learner = _learner(target)
    publish(learner.folded(), tmp_path)
    for row, end in ((0, 9), (1, 20), (2, 14)):
        ids = texts.ids[row, :end].tolist()
        drafts = _served(folder, tmp_path, ids, COUNT)
        assert learner.hits((*ids, *drafts), end - 1, COUNT)[0].all()
        wrong = [*drafts[:-2], (drafts[-2] + 1) % 96, drafts[-1]]
        assert learner.hits((*ids, *wrong), end - 1, COUNT)[0].tolist()[: COUNT - 1] == [True] * (COUNT - 2) + [False]


def test_the_loss_falls_and_tau_is_counted(target: FrozenTarget, texts: Conversations) -> None:
    packed, learner = pack(texts), _learner(target)
    first = learner.loss(packed, torch.Generator().manual_seed(1)).item()
    learn(learner, packed, lambda _step, _seconds: None)
    assert learner.loss(packed, torch.Generator().manual_seed(1)).item() < first
    end = int(texts.ends[1])
    answer = Answer(texts.ids[1, :end].tolist(), int(texts.starts[1]), "all", end)
    (line, _) = measure(learner, {0.0: [answer]}, COUNT)
    assert line.tau >= 1.0
    assert line.tokens == end - 1 - answer.start


def test_rows_are_asked_for_behind_anchors_of_their_own_text(texts: Conversations) -> None:
    batch = pack(replace(texts, ends=torch.full((16,), 16)))
    for step in (0, 2):
        for row, place in _asked(batch, step).nonzero().tolist():
            assert batch.answers[row, place - step]
            assert len(set(batch.owners[row, place - step : place + 2].tolist())) == 1
            assert batch.positions[row, place - step] > 0
        assert _asked(batch, step).any()


def test_chains_of_one_text_do_not_see_another(target: FrozenTarget, texts: Conversations) -> None:
    batch, learner = pack(replace(texts, ends=torch.full((16,), 16))).rows(torch.arange(1)), _learner(target)
    features, _ = learner.read(batch)
    whole = learner.drafted(features, batch, 3)
    last = batch.owners[0] == batch.owners[0].max()
    alone = replace(batch, owners=torch.where(last, batch.owners, 0))
    changed = torch.where(last[None, :, None], features, torch.zeros_like(features))
    for step, (one, other) in enumerate(zip(whole, learner.drafted(changed, alone, 3), strict=True)):
        reach = last & (batch.positions[0] > step)
        torch.testing.assert_close(one[0, reach], other[0, reach], atol=1e-5, rtol=1e-5)
    assert isinstance(learner.folded(), Eagle3)
