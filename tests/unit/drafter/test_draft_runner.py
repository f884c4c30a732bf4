"""One round: which rows are drafted, what the mailbox holds, and that nothing moves (I3, I4, I6)."""

import torch
from torch import Tensor

from services.common.device.graph import StepGraphs
from services.common.pair import attach
from services.drafter.arena_view import ArenaView
from services.drafter.attachment import DraftRunner
from services.drafter.handoff.host import HostHandoff
from services.drafter.proposers import Proposer
from services.drafter.proposers.ngram import NgramProposer
from services.drafter.proposers.none import NoneProposer
from tests.support.fakes_arena import SLOTS, FakeArena

GENERATION = 6


def _pacer(fake: FakeArena, proposer: Proposer) -> DraftRunner:
    pacer = DraftRunner(
        ArenaView.of(fake.arena, 16), proposer, GENERATION, StepGraphs("cpu"), HostHandoff(torch.device("cpu"))
    )
    pacer.warm_up((1, 2, 4), (4, 8))
    return pacer


def test_drafts_and_tags_belong_to_the_slot_of_the_row(fake: FakeArena) -> None:
    pacer = _pacer(fake, NgramProposer())
    fake.put(3, [1, 2, 3, 1], epoch=11)
    fake.put(0, [7, 8, 7], epoch=12)
    fake.rows([3, 0], bucket=2)
    pacer.draft(number=40, bucket=2, width=4)
    assert fake.drafts(3, 3) == [2, 3, 1]
    assert fake.drafts(0, 3) == [8, 7, 8]
    assert fake.tag(3) == (40, 11, GENERATION)
    assert fake.tag(0) == (40, 12, GENERATION)
    assert fake.tag(1) == fake.tag(2)


def test_a_round_leaves_other_slots_and_later_drafts_alone(fake: FakeArena) -> None:
    pacer = _pacer(fake, NgramProposer())
    fake.arena[attach.TOKENS].fill_(-7)
    fake.arena[attach.TAG].fill_(-7)
    fake.put(2, [4, 4, 4], epoch=1)
    fake.rows([2], bucket=4)
    pacer.draft(number=1, bucket=4, width=4)
    assert fake.drafts(2, 7) == [4, 4, 4, -7, -7, -7, -7]
    assert [fake.tag(slot) for slot in (0, 1, 3)] == [(-7, -7, -7)] * 3


def test_poison_in_pad_and_unused_rows_changes_nothing(fake: FakeArena) -> None:
    pacer = _pacer(fake, NgramProposer())
    fake.put(1, [5, 6, 5], epoch=2)
    fake.rows([1], bucket=4)
    pacer.draft(number=1, bucket=4, width=8)
    clean = fake.drafts(1, 7)
    for slot in (0, 2, SLOTS):
        fake.put(slot, [40, 41, 42] * 8, epoch=99)
        fake.arena[attach.HISTORY_LENGTH][slot] = 2**40
    pacer.draft(number=2, bucket=4, width=8)
    assert fake.drafts(1, 7) == clean
    assert fake.tag(1) == (2, 2, GENERATION)


def test_none_leaves_every_draft_empty(fake: FakeArena) -> None:
    pacer = _pacer(fake, NoneProposer())
    fake.put(0, [1, 1, 1], epoch=1)
    fake.rows([0], bucket=1)
    pacer.draft(number=1, bucket=1, width=8)
    assert fake.drafts(0, 7) == [-1] * 7
    assert fake.tag(0) == (1, 1, GENERATION)


class WatchedHandoff(HostHandoff):
    """Notes what the stamp holds when the stream is told to wait."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.stamp_2 = torch.empty(0)
        self.found: list[int] = []

    def hold(self, stamp_2: Tensor, bucket: int) -> None:
        self.stamp_2 = stamp_2

    def begin(self, number: int, bucket: int, behind_prompts: bool) -> None:
        self.found.append(int(self.stamp_2[0]))


def test_nothing_stands_before_the_wait_for_a_round(fake: FakeArena) -> None:
    handoff = WatchedHandoff()
    pacer = DraftRunner(ArenaView.of(fake.arena, 16), NgramProposer(), GENERATION, StepGraphs("cpu"), handoff)
    pacer.warm_up((1,), (4,))
    fake.put(0, [7, 8, 7], epoch=1)
    fake.rows([0], bucket=1)
    for number in (5, 6):
        pacer.draft(number, bucket=1, width=4)
    assert handoff.found == [0, 5], "the stamp is written behind the wait"
    assert fake.tag(0) == (6, 1, GENERATION)


def test_nothing_is_captured_or_moved_after_warm_up(fake: FakeArena) -> None:
    pacer = _pacer(fake, NgramProposer())
    warm = pacer.counters
    source = torch.Generator().manual_seed(3)
    for number in range(60):
        slots = torch.randperm(SLOTS, generator=source)[: 1 + number % 4].tolist()
        for slot in slots:
            size = int(torch.randint(1, 60, (1,), generator=source))
            fake.put(slot, torch.randint(0, 9, (size,), generator=source).tolist(), epoch=number)
        bucket = {1: 1, 2: 2}.get(len(slots), 4)
        fake.rows(slots, bucket)
        pacer.draft(number, bucket, (4, 8)[number % 2])
    assert warm.captures == pacer.counters.captures == 6
    assert warm.replays == 0, "on a CPU a capture has run its step"
    assert (pacer.counters.recaptures, pacer.counters.reallocations) == (0, 0)
    assert pacer.counters.replays - warm.replays == 60
