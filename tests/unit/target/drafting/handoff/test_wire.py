"""Hand-off by wire on the target's side: what an answer may do to the mailbox, and what a drafter is told of texts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from services.common.kernels.mailbox import ABSENT, read_mailbox
from services.common.pair import attach
from services.common.pair.arena import MemfdArena
from services.common.pair.wire import MAX_ANSWER_BYTES, Text
from services.common.pb.paceline.v1 import drafter_pb2 as pb
from services.target.core.plan import Plan
from services.target.drafting.handoff.answers import AnswerPost
from services.target.drafting.handoff.mailbox import Mailbox
from services.target.drafting.handoff.texts import Texts, split
from services.target.drafting.handoff.wire import WireHandoff
from tests.support.fakes_arena import SHAPE, SLOTS, VOCAB
from tests.support.fakes_attachment import FakeAttachment

ROUND, GENERATION, EPOCH, COUNT = 9, 3, 5, 3
RIGHT = [7, 8, 9]


@pytest.fixture
def arena() -> Iterator[MemfdArena]:
    made = MemfdArena.create(attach.control_tensors(SHAPE))
    yield made
    made.close()


class Filled:
    """A mailbox that answers fill, and what verify takes out of it for slots 0 and 1."""

    def __init__(self, arena: MemfdArena) -> None:
        self.mailbox = Mailbox.private(Mailbox.shared(arena))
        self.post = AnswerPost(self.mailbox)

    def take(self, *answers: pb.PaceResponse) -> list[list[int]]:
        for answer in answers:
            self.post.fill(answer, COUNT)
        self.post.deliver()
        tokens_SK, tag_S3 = self.mailbox.tokens_SK, self.mailbox.tag_S3
        rows_B, epochs_S = torch.tensor([0, 1], dtype=torch.int32), torch.full((SLOTS + 1,), EPOCH)
        out_BK = torch.empty(2, COUNT, dtype=torch.int64)
        expected_2 = torch.tensor([ROUND, GENERATION])
        return read_mailbox(tokens_SK, tag_S3, rows_B, epochs_S, expected_2, VOCAB, out_BK).tolist()


@pytest.fixture
def filled(arena: MemfdArena) -> Filled:
    return Filled(arena)


def draft(slot: int = 0, epoch: int = EPOCH, ids: list[int] = RIGHT) -> pb.RowDraft:
    return pb.RowDraft(slot=slot, epoch=epoch, token_ids=ids)


def answer(*drafts: pb.RowDraft, number: int = ROUND, generation: int = GENERATION) -> pb.PaceResponse:
    return pb.PaceResponse(generation=generation, round=number, drafts=drafts)


NONE = [ABSENT] * COUNT


def test_the_drafts_of_an_answer_reach_verify(filled: Filled) -> None:
    assert filled.take(answer(draft(1, ids=[1, 2, 3]), draft(0))) == [RIGHT, [1, 2, 3]]


@pytest.mark.parametrize(
    "wrong",
    [
        answer(),
        answer(draft(), number=ROUND - 1),
        answer(draft(), number=2**64 - 1),
        answer(draft(), generation=GENERATION - 1),
        answer(draft(epoch=EPOCH + 1)),
        answer(draft(epoch=2**64 - 1)),
        answer(draft(ids=[])),
        answer(draft(ids=RIGHT[:2])),
        answer(draft(ids=[*RIGHT, 1])),
        answer(draft(ids=[7, VOCAB, 9])),
        answer(draft(ids=[7, 2**31, 9])),
        answer(draft(ids=[2**32 - 1] * 3)),
        answer(draft(slot=SLOTS)),
        answer(draft(slot=SLOTS + 1)),
        answer(draft(slot=2**32 - 1)),
        answer(*[draft()] * (SLOTS + 1)),
    ],
    ids=str,
)
def test_a_wrong_answer_is_no_draft(filled: Filled, wrong: pb.PaceResponse) -> None:
    assert filled.take(wrong) == [NONE, NONE]


def test_a_wrong_row_leaves_the_others(filled: Filled) -> None:
    assert filled.take(answer(draft(0, ids=[1]), draft(99), draft(1))) == [NONE, RIGHT]


def test_a_stale_answer_leaves_nothing_behind(filled: Filled) -> None:
    stale = answer(draft(0, ids=[1, 1, 1]), draft(1, ids=[1, 1, 1]), number=ROUND - 1)
    assert filled.take(stale, answer(draft(1))) == [NONE, RIGHT]


def test_the_largest_answer_of_the_largest_target_is_taken() -> None:
    rows = [pb.RowDraft(slot=slot, epoch=2**40, token_ids=[200_000] * 127) for slot in range(1024)]
    assert answer(*rows).ByteSize() < MAX_ANSWER_BYTES


def test_no_drafter_can_write_what_verify_reads(arena: MemfdArena) -> None:
    handoff = WireHandoff(arena, torch.device("cpu"), shares_memory=True)
    arena.tensor(attach.TOKENS).fill_(7)
    assert int(handoff.mailbox.tokens_SK.abs().sum()) == 0


def publish(arena: MemfdArena, slot: int, tokens: list[int], epoch: int) -> None:
    arena[attach.HISTORY][slot, : len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
    arena[attach.HISTORY_LENGTH][slot] = len(tokens)
    arena[attach.EPOCH][slot] = epoch


def test_each_attachment_is_told_everything_once(arena: MemfdArena) -> None:
    publish(arena, 1, [4, 5, 6], epoch=1)
    publish(arena, 2, [7], epoch=2)
    texts = Texts(arena)
    assert texts.news([1, 2]) == [Text(1, 1, 0, [4, 5, 6]), Text(2, 2, 0, [7])]
    publish(arena, 1, [4, 5, 6, 8, 9], epoch=1)
    publish(arena, 2, [3, 3], epoch=4)
    assert texts.news([1]) == [Text(1, 1, 3, [8, 9])]
    assert texts.news([2, 1]) == [Text(2, 4, 0, [3, 3])]
    assert Texts(arena).news([1]) == [Text(1, 1, 0, [4, 5, 6, 8, 9])], "another drafter knows nothing yet"


def test_long_texts_take_several_messages() -> None:
    texts = [Text(0, 1, 0, [1, 2]), Text(1, 1, 4, [3, 4, 5, 6, 7]), Text(2, 1, 0, [8])]
    assert split(texts, most=3) == [
        [Text(0, 1, 0, [1, 2])],
        [Text(1, 1, 4, [3, 4, 5])],
        [Text(1, 1, 7, [6, 7]), Text(2, 1, 0, [8])],
    ]
    assert split([]) == []


class Stream:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[pb.PaceRequest] = []

    def put(self, message: pb.PaceRequest) -> None:
        self.sent.append(message)


@pytest.mark.parametrize("shares_memory", [True, False])
def test_only_a_drafter_without_the_memory_is_told_texts(arena: MemfdArena, shares_memory: bool) -> None:
    publish(arena, 2, [7, 8], epoch=6)
    arena[attach.ROWS][:1] = 2
    handoff = WireHandoff(arena, torch.device("cpu"), shares_memory)
    stream = Stream()
    drafts = handoff.open(FakeAttachment(GENERATION, stream=stream), lambda: None)
    plan = Plan(ROUND, 4, (2,), 1, (), (), (), ())
    drafts.publish(plan)
    drafts.ask(plan)
    (sent,) = stream.sent
    assert (sent.generation, sent.round, sent.bucket, sent.width, sent.rows) == (GENERATION, ROUND, 1, 4, 1)
    told = [pb.SlotText(slot=2, epoch=6, start=0, token_ids=[7, 8])]
    assert (list(sent.texts), list(sent.slots)) == (([], []) if shares_memory else (told, [2]))
