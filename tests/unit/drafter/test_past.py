"""What a tenant's earlier answers said is continued for that tenant alone, as most of the latest ones went on."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from services.drafter.arena_view import ArenaView
from services.drafter.proposers.build import build_proposer
from services.drafter.proposers.ngram import NgramProposer
from services.drafter.proposers.past import KEY, TENANTS, PastTexts
from services.drafter.proposers.repeats import repeats
from services.drafter.settings import DrafterSettings
from tests.lossless.pairs import made_up_pair
from tests.lossless.rig import Done, Rig, RigSettings
from tests.lossless.served import Served
from tests.support.fakes_arena import FakeArena
from tests.unit.target.core.specs import prompt, request

LONGEST, COUNT = 8, 5


class Slots:
    """One arena whose slots are written by hand; `owner` tells whose each is."""

    def __init__(self, fake: FakeArena, past: PastTexts) -> None:
        shape = fake.arena.tensor("slot.length").shape
        self.fake, self.past, self.owner = fake, past, torch.zeros(shape, dtype=torch.int64)
        self.view = replace(ArenaView.of(fake.arena, 16), owner_S=self.owner)

    def says(self, slot: int, owner: int, epoch: int, *parts: Sequence[int]) -> None:
        """Rounds of one request, each with more of its text than the one before."""
        self.owner[slot], text = owner, list[int]()
        for part in parts:
            text += part
            self.fake.put(slot, text, epoch=epoch)
            self.drafts(slot)

    def drafts(self, slot: int) -> list[int]:
        """What lookup proposes in a slot."""
        proposed: list[int] = (
            NgramProposer(LONGEST, 1, self.past)
            .propose(self.view, torch.tensor([slot], dtype=torch.int32), COUNT + 1)[0]
            .tolist()
        )
        return proposed


@pytest.fixture
def slots(fake: FakeArena) -> Slots:
    return Slots(fake, PastTexts(1000, LONGEST))


def test_an_earlier_answer_is_continued_for_its_tenant_alone(slots: Slots) -> None:
    answer = [11, 12, 13, 14, 15, 16, 17, 18]
    slots.says(0, 7, 1, [1, 2], answer)
    slots.says(1, 7, 2, [5, 6], [11, 12, 13])
    assert slots.drafts(1) == [14, 15, 16, 17, 18]
    for owner in (8, 0):
        slots.says(1, owner, 3 + owner, [5, 6], [11, 12, 13])
        assert slots.drafts(1) == [-1] * COUNT


def test_a_text_that_says_more_itself_goes_on_as_it_did(slots: Slots) -> None:
    slots.says(0, 7, 1, [1, 2], [11, 12, 13, 14, 15])
    slots.says(1, 7, 2, [9, 11, 12, 13, 30, 31, 32, 33, 40], [9, 11, 12, 13])
    assert slots.drafts(1)[:2] == [30, 31]


def test_a_slot_that_is_given_away_while_it_is_read_leaves_nothing(
    slots: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next request's text is not taken for the last one's."""
    slots.says(0, 7, 1, [1, 2], [11, 12, 13])
    put = torch.Tensor.tolist

    def given_away(tensor: torch.Tensor) -> list[int]:
        slots.owner[0] = 9
        told: list[int] = put(tensor)
        return told

    slots.fake.put(0, [1, 2, 11, 12, 13, 51, 52, 53, 54], epoch=1)
    rows, found = torch.tensor([0]), repeats(torch.zeros(1, 8, dtype=torch.int32), torch.tensor([0]), COUNT, LONGEST, 1)
    monkeypatch.setattr(torch.Tensor, "tolist", given_away)
    slots.past.beside(found, slots.view, rows)
    monkeypatch.undo()
    for owner in (7, 9):
        assert slots.past.continued(owner, [51, 52, 53], COUNT).tokens == []


@pytest.mark.parametrize("letters", [2, 3, 8])
def test_continuations_are_those_of_a_plain_search(letters: int, seed: int) -> None:
    draw = random.Random(seed + letters)
    past, texts = PastTexts(10_000, LONGEST), list[list[int]]()
    for _ in range(6):
        text = [draw.randrange(letters) for _ in range(draw.randint(1, 30))]
        past._tenant(1).add([], text)
        texts.append(text)
    for _ in range(60):
        suffix = [draw.randrange(letters) for _ in range(LONGEST)]
        got, (size, paths) = past.continued(1, suffix, COUNT), _plain(texts, suffix)
        if not paths:
            assert got.tokens == []
            continue
        assert got.size in (size, 0)
        scores = {tuple(path): sum(_alike(path, other) for other in paths) for path in paths}
        assert any(list(path[: len(got.tokens)]) == got.tokens and score == max(scores.values())
                   for path, score in scores.items())  # fmt: skip


def _plain(texts: list[list[int]], suffix: list[int]) -> tuple[int, list[list[int]]]:
    """The longest match of a suffix, and how the latest eight such places go on."""
    found = [(_alike(text[:start][::-1], suffix[::-1]), text[start : start + COUNT])
             for text in texts for start in range(KEY, len(text))]  # fmt: skip
    size = max((one for one, _ in found), default=0)
    return size, [path for one, path in reversed(found) if one == size][:8] if size >= KEY else []


def _alike(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def test_what_is_kept_is_bounded_and_the_oldest_goes(slots: Slots) -> None:
    past = PastTexts(100, LONGEST)
    for start in range(0, 3000, 10):
        past._tenant(1).add([], range(start, start + 10))
    tenant = past._tenant(1)
    assert tenant._young.size <= 50 and tenant._old.size <= 50
    assert past.continued(1, [2990, 2991, 2992], COUNT).tokens == [2993, 2994, 2995, 2996, 2997]
    assert past.continued(1, [0, 1, 2], COUNT).tokens == []
    for owner in range(100, 100 + 3 * TENANTS):
        past._tenant(owner)
    assert len(past._tenants) == TENANTS and 1 not in past._tenants


def _served(salts: Sequence[bytes], past: int) -> list[Done]:
    """The same prompt by one tenant after another, in one slot."""
    pair = made_up_pair()
    settings = DrafterSettings(proposer="ngram", ngram_min=3, past_outputs=past)
    specs = [replace(request(f"r{n}", prompt(4, 30), 40), salt=salt) for n, salt in enumerate(salts)]
    how = RigSettings(dtype=torch.float64, width=5, slots=1, buckets=(1,), prefix_cache=False)
    with Rig(pair.target, pair.drafter, how, lambda rig: Served(rig, build_proposer(settings))) as rig:
        return [rig.run([spec])[0] for spec in specs]


def test_text_is_the_same_and_a_tenants_second_answer_takes_fewer_rounds() -> None:
    without, with_past = _served((b"a", b"b", b"a", b""), 0), _served((b"a", b"b", b"a", b""), 5000)
    assert [one.tokens for one in with_past] == [one.tokens for one in without]
    rounds = [one.rounds for one in with_past]
    assert rounds[:2] == [one.rounds for one in without][:2] and rounds[3] == without[3].rounds
    assert rounds[2] < 0.7 * without[2].rounds


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"proposer": "ngram", "past_outputs": -1}, "past_outputs must be in"),
        ({"proposer": "ngram", "past_outputs": 10, "device": "cuda"}, "past_outputs needs a CPU"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        DrafterSettings(**changes)  # type: ignore[arg-type]
