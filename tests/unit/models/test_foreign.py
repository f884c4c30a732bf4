"""A drafter for somebody else's target: what is written, packed, learnt, measured and published."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.training.foreign.corpus import Conversations, distinct
from models.training.foreign.frozen import FrozenTarget, load_frozen
from models.training.foreign.learning import Learner, learn
from models.training.foreign.loops import first_repeats
from models.training.foreign.loss import Labels, draft_loss
from models.training.foreign.openings import draw_opening
from models.training.foreign.packing import Packed, Pattern, causal_bias, draw_blocks, pack
from models.training.foreign.publish import publish, published
from models.training.foreign.replay import Answer, accepted_table, ask, hits_of, lookup_table, walk
from models.training.foreign.writing import Writing, write
from services.common.model.drafters import open_drafter
from tests.unit.models.foreign_pair import CONFIGS, MASK, OPTIONS, VOCAB, shape_of, target_folder


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_packed_rows_have_the_hidden_states_of_transformers(kind: str, tmp_path: Path) -> None:
    folder = target_folder(tmp_path / "target", kind)
    target = load_frozen(folder, "cpu")
    from transformers import AutoModelForCausalLM

    other = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    draw = torch.Generator().manual_seed(0)
    parts = [torch.randint(0, VOCAB, (size,), generator=draw) for size in (9, 14)]
    texts = Conversations(
        torch.stack([torch.nn.functional.pad(part, (0, 24 - len(part))) for part in parts]).int(),
        torch.tensor([3, 3]), torch.tensor([9, 14]), torch.tensor([True, False]),
    )  # fmt: skip
    batch = pack(texts)
    assert batch.ids.shape == (1, 24)
    bias = causal_bias(batch, torch.float32)
    features, normed = target.read(batch.ids.long(), batch.positions.long(), bias, (0, 2))
    for owner, part in ((1, parts[1]), (2, parts[0])):
        told = other(part[None], output_hidden_states=True)
        own = batch.owners[0] == owner
        expected = torch.cat((told.hidden_states[1], told.hidden_states[3]), dim=-1)[0]
        torch.testing.assert_close(features[0, own], expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(target.head(normed)[0, own], told.logits[0], atol=1e-4, rtol=1e-4)


def test_greedy_texts_are_those_of_one_at_a_time(target: FrozenTarget, texts: Conversations) -> None:
    for row in torch.nonzero(texts.greedy)[:, 0].tolist():
        ids, start, end = texts.ids[row].long(), int(texts.starts[row]), int(texts.ends[row])
        assert end == texts.ids.shape[1] or ids[end - 1] == 2
        single = Packed.single(ids[:end])
        _, normed = target.read(single.ids, single.positions, causal_bias(single, torch.float32), (0,))
        assert target.head(normed)[0, start - 1 : end - 1].argmax(-1).tolist() == ids[start:end].tolist()


def test_drawn_texts_differ_and_every_text_keeps_its_beginning(target: FrozenTarget) -> None:
    begun = [[7, 8, 9]] * 12
    ids, ends = write(target, begun, [1.0] * 12, Writing(20, 5, (2,)), seconds=60.0)
    assert ids[:, :3].tolist() == begun
    assert bool((ends > 3).all())
    assert len({tuple(row) for row in ids.tolist()}) > 6


def test_first_repeat_is_where_a_search_finds_it() -> None:
    chooser = random.Random(0)
    rows: list[list[int]] = []
    places: list[tuple[int, int, int]] = []
    for _ in range(60):
        row = [chooser.randrange(2) for _ in range(40)]
        start, end = chooser.randrange(10), chooser.randrange(20, 41)
        grams: set[tuple[int, ...]] = set()
        first = 40
        for at in range(start, end - 4):
            gram = tuple(row[at : at + 5])
            if gram in grams:
                first = at + 4
                break
            grams.add(gram)
        rows.append(row)
        places.append((start, end, first))
    starts, ends, found = torch.tensor(places).unbind(1)
    assert first_repeats(torch.tensor(rows), starts, ends, gram=5).tolist() == found.tolist()


def test_prompts_like_held_out_ones_are_dropped() -> None:
    held_out = ["Why do cats purr when someone pets them?", "Name five mammals."]
    prompts = [
        "name five mammals",
        "Tell me why do cats purr when someone pets dogs",
        "Name five mammals now",
        " ",
        "A b",
        "a B!",
    ]
    assert distinct(prompts, held_out) == ["Name five mammals now", "A b"]


def test_openings_leave_no_place_unfilled() -> None:
    chooser = random.Random(0)
    drawn = [draw_opening(chooser) for _ in range(4000)]
    assert not any("{" in opening.text.replace("{}", "") and "}" in opening.text for opening in drawn)
    assert {opening.kind for opening in drawn} >= {"question", "code", "json", "summary", "list", "rewrite"}
    assert 0.2 < sum(opening.whole for opening in drawn) / len(drawn) < 0.8


def test_rows_hold_every_conversation_once(texts: Conversations) -> None:
    ends = torch.randint(9, 33, (16,), generator=torch.Generator().manual_seed(4))
    packed = pack(replace(texts, ends=ends))
    found = []
    for row in range(len(packed.ids)):
        for owner in range(1, int(packed.owners[row].max()) + 1):
            own = packed.owners[row] == owner
            assert packed.positions[row, own].tolist() == list(range(int(own.sum())))
            found.append(packed.ids[row, own].tolist())
    assert sorted(found) == sorted(row[:end] for row, end in zip(texts.ids.tolist(), ends.tolist(), strict=True))
    assert len(packed.ids) <= 1.3 * int(ends.sum()) / 32 + 1


def test_blocks_see_their_conversation_before_the_anchor_and_themselves(texts: Conversations) -> None:
    packed = pack(replace(texts, ends=torch.full((16,), 16)))
    batch, pattern = packed.rows(torch.arange(3)), Pattern(((8, 2), (4, 3)))
    blocks = draw_blocks(batch, pattern, torch.Generator().manual_seed(0), torch.float32)
    number, offsets = pattern.numbers(torch.device("cpu"))
    length = batch.ids.shape[1]
    for row in range(3):
        for at, block in enumerate(number.tolist()):
            anchor = int(blocks.places[row, number.tolist().index(block)])
            assert batch.answers[row, anchor]
            own = batch.owners[row] == batch.owners[row, anchor]
            seen = torch.cat((own & (torch.arange(length) < anchor), number == block))
            assert (blocks.bias[row, 0, at] == 0).tolist() == seen.tolist()
            inside = anchor + int(offsets[at]) < length and bool(own[anchor + int(offsets[at])])
            assert bool(blocks.asked[row, at]) == (inside and int(offsets[at]) > 0)


def test_loss_and_gradient_are_those_of_autograd() -> None:
    draw = torch.Generator().manual_seed(0)
    hidden, table, normed = (torch.randn(size, 6, generator=draw, dtype=torch.float64) for size in (11, 20, 11))
    tokens, greedy = torch.randint(0, 20, (11,), generator=draw), torch.arange(11) % 3 == 0
    labels = Labels(normed, tokens, greedy, torch.rand(11, generator=draw, dtype=torch.float64))
    own, plain = hidden.clone().requires_grad_(), hidden.clone().requires_grad_()
    loss = draft_loss(own, table, labels, 0.8, 4)
    told = torch.where(greedy[:, None], torch.eye(20)[tokens], (normed @ table.T / 0.8).softmax(-1))
    losses = -(told * (plain @ table.T / 0.8).log_softmax(-1)).sum(-1)
    expected = (losses * labels.weights).sum() / labels.weights.sum()
    torch.testing.assert_close(loss.double(), expected, atol=1e-5, rtol=1e-5)
    torch.autograd.backward([loss * 3, expected * 3])
    torch.testing.assert_close(own.grad, plain.grad, atol=1e-6, rtol=1e-5)


def test_the_loss_falls_and_the_published_drafter_drafts_alike(
    target: FrozenTarget, texts: Conversations, tmp_path: Path
) -> None:
    packed = pack(texts)
    reports: list[int] = []
    learner = Learner(target, shape_of(target), OPTIONS)
    draw = torch.Generator().manual_seed(9)
    learner.measure_scale([packed.rows(torch.arange(4))])
    before = learner.loss(packed, torch.Generator().manual_seed(9)).item()
    assert learn(learner, packed, lambda step, _: reports.append(step)) == 30
    assert reports == [30]
    assert learner.loss(packed, draw).item() < 0.95 * before
    publish(learner.folded(), tmp_path)
    other = Learner(target, shape_of(target), OPTIONS)
    other.drafter.load_published(published(tmp_path))
    answer = Answer(texts.ids[1, : int(texts.ends[1])].tolist(), int(texts.starts[1]), "all", 0)
    own, written = (hits_of(each, answer, ask(each, answer, 8)) for each in (learner, other))
    assert (own != written).float().mean() < 0.05
    spec, _ = open_drafter(tmp_path, torch.device("cpu"), False)
    assert (spec.block_size, spec.mask_token_id, spec.target_layer_ids) == (8, MASK, (1, 2))


def test_rounds_are_those_of_decoding_step_by_step(target: FrozenTarget, texts: Conversations) -> None:
    learner = Learner(target, shape_of(target), OPTIONS)
    for row in range(4):
        start, end = int(texts.starts[row]), int(texts.ends[row])
        answer = Answer(texts.ids[row, :end].tolist(), start, "all", end)
        rounds, tokens = walk(accepted_table(hits_of(learner, answer, ask(learner, answer, 8))), start, end)
        assert (rounds, tokens) == _decode(learner, answer, 8)


def test_a_walk_ends_with_the_answer() -> None:
    assert walk([2, 0, 0, 5, 5, 5], 10, 16) == (2, 5)
    assert walk([9] * 6, 10, 16) == (1, 5)
    assert walk([0], 10, 11) == (0, 0)


def test_lookup_proposes_what_followed_the_last_match() -> None:
    ids = (1, 2, 3, 4, 1, 2, 3, 4, 9)
    assert lookup_table(ids, 6, 8, 7) == [1, 0]


def _decode(learner: Learner, answer: Answer, size: int) -> tuple[int, int]:
    """Draft one block at a time from a text that has just been read, as a server does."""
    rounds, at, end = 0, answer.start, len(answer.ids)
    while at < end - 1:
        drafts = _block(learner, answer.ids, at, size)
        right = 0
        while right < size - 1 and at + 1 + right < end and drafts[right] == answer.ids[at + 1 + right]:
            right += 1
        at, rounds = min(at + right + 1, end - 1), rounds + 1
    return rounds, end - 1 - answer.start


def _block(learner: Learner, ids: list[int], anchor: int, size: int) -> list[int]:
    drafter, target = learner.drafter, learner.target
    features: Tensor = learner.features(tuple(ids[: anchor + 1]))[None]
    embeddings = target.embed(torch.tensor([[ids[anchor], *[MASK] * (size - 1)]]))
    drafts: list[int] = target.head(drafter(features, torch.tensor([[anchor]]), embeddings)[0, 0]).argmax(-1).tolist()
    return drafts
