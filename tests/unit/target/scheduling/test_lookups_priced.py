"""Widths where a lookup has drafts in some rounds alone: what wide rounds bring counts by how often it has any."""

import random
from collections.abc import Callable, Iterable

import pytest

from services.target.core.width import Width
from services.target.scheduling.width.policy import FixedWidth, WidthPolicy
from services.target.scheduling.width.width import adaptive_policy
from tests.unit.target.scheduling.acceptance_profiles import accepted_drafts
from tests.unit.target.scheduling.scheduling import Rig, spec
from tests.unit.target.scheduling.test_experts_priced import topical

WIDTHS, BUCKETS = (1, 4, 8), (1, 2, 4, 8)
MATCHES = [0.8] * 7
LIFE = 200


def dense(bucket: int, width: int) -> float:
    """A large GPU and a dense model: rows are nearly free."""
    return 2700.0 + 6.0 * bucket * width + 60.0 * (width > 1)


def warm(cost: Callable[[int, int], float]) -> dict[tuple[int, int], float]:
    return {(bucket, width): cost(bucket, width) for bucket in BUCKETS for width in WIDTHS}


def served(
    policy: WidthPolicy, rows: int, shares: Iterable[float], cost: Callable[[int, int], float], seed: int
) -> tuple[list[float], list[int]]:
    """Serve `rows` requests, one after another, and return microseconds and tokens of each round.

    A wide round has drafts for a row by a chance, one for each round.
    """
    source, following = random.Random(seed), rows
    left = dict.fromkeys(range(rows), LIFE)
    took, tokens = list[float](), list[int]()
    for uid in left:
        policy.join(uid, None, LIFE)
    for share in shares:
        width, committed = int(policy.choose(rows, rows)), 0
        for uid in list(left):
            drafted = width - 1 if source.random() < share else 0
            accepted = accepted_drafts(source, MATCHES, drafted)
            committed += accepted + 1
            left[uid] -= accepted + 1
            policy.observe(uid, drafted, accepted, left[uid] <= 0)
            if width > 1 and not drafted:
                policy.missed(uid)
            if left[uid] <= 0:
                policy.leave(uid)
                del left[uid]
                left[following] = LIFE
                policy.join(following, None, LIFE)
                following += 1
        took.append(cost(rows, width) * source.uniform(0.97, 1.03))
        tokens.append(committed)
        policy.landed(rows, width, committed, took[-1])
    return took, tokens


def speed(took: list[float], tokens: list[int]) -> float:
    return sum(tokens) / sum(took)


@pytest.mark.parametrize("rows", [1, 4, 8])
def test_experts_are_not_read_for_drafts_that_there_are_not(rows: int) -> None:
    """A wide round reads some times as many experts as a plain one."""
    policy = adaptive_policy(WIDTHS, BUCKETS, warm(topical))
    found = speed(*served(policy, rows, [0.02] * 1500, topical, 5))
    assert found >= 0.96 * rows / topical(rows, 1)


def test_a_lookup_that_always_has_drafts_is_as_before() -> None:
    """A mixture gains by drafts that match in most rounds."""
    policy = adaptive_policy(WIDTHS, BUCKETS, warm(topical))
    found = speed(*served(policy, 1, [1.0] * 1500, topical, 6))
    best = max((1.0 + sum(0.8**place for place in range(1, width))) / topical(1, width) for width in WIDTHS)
    assert found >= 0.95 * best


@pytest.mark.parametrize("rows", [1, 4, 8])
def test_a_text_that_begins_to_repeat_itself_is_noticed(rows: int) -> None:
    """Rows of a dense model cost little, so it stays wide where few rounds have drafts."""
    policy = adaptive_policy(WIDTHS, BUCKETS, warm(dense))
    took, tokens = served(policy, rows, [0.02] * 600 + [1.0] * 200, dense, 7)
    assert speed(took[:600], tokens[:600]) >= 0.92 * rows / dense(rows, 1)
    best = max(rows * (1.0 + sum(0.8**place for place in range(1, width))) / dense(rows, width) for width in WIDTHS)
    assert speed(took[600:], tokens[600:]) >= 0.9 * best


class Noted(FixedWidth):
    """Rows of four; notes who had no drafts, and which rounds landed at what time."""

    def __init__(self) -> None:
        super().__init__(4)
        self.without: list[int] = []
        self.rounds: list[tuple[Width, float | None]] = []

    def missed(self, uid: int) -> None:
        self.without.append(uid)

    def landed(self, bucket: int, width: Width, committed: int, micros: float | None, context: int = 0) -> None:
        self.rounds.append((width, micros))


def rounds_of(matched: int, micros: float | None, off: bool = False) -> Noted:
    """What a policy hears of two requests' rounds after their prompts; `matched` below 0: no drafts came."""
    policy = Noted()
    rig = Rig(policy=policy)
    rig.scheduler.add(spec(seed=1, tokens=20), None, 0.0)
    rig.scheduler.add(spec(seed=2, tokens=20, off=off), None, 0.0)
    for now in range(1, 5):
        plan = rig.scheduler.plan(float(now))
        rig.scheduler.commit(plan, rig.device.execute(plan, matched), float(now), micros)
    return policy


def test_a_wide_round_without_drafts_is_told_as_one_with_its_time() -> None:
    policy = rounds_of(-1, 700.0)
    assert len(set(policy.without)) == 2
    assert (4, 1e6) in policy.rounds, "the longer of its own time and of that between commits"
    assert all(width == 4 for width, _ in policy.rounds)


def test_a_fallback_tells_nothing() -> None:
    """A drafter that was late says nothing of what lookups find, and the round was plain."""
    policy = rounds_of(-1, None)
    assert policy.without == []
    assert policy.rounds == []


def test_who_has_drafts_or_wants_none_is_not_told() -> None:
    assert rounds_of(2, 700.0).without == []
    assert len(set(rounds_of(-1, 700.0, off=True).without)) == 1
