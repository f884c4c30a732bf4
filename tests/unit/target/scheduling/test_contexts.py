"""Rounds of long contexts take longer: the choice of the width knows by how much, from the first round on."""

from collections.abc import Sequence

import pytest

from services.target.scheduling.width.costs import FIRST_ROUNDS, CostTable
from services.target.scheduling.width.policy import FixedWidth
from services.target.scheduling.width.width import adaptive_policy
from services.target.settings import TargetSettings
from tests.unit.target.scheduling.acceptance_profiles import P65
from tests.unit.target.scheduling.scheduling import Rig, spec
from tests.unit.target.scheduling.served_loads import WARM_MICROS, regret

WIDTHS = TargetSettings(model="m", device="cuda").draft_widths
SHORT, LONG = 128, 512
PROMPTS = (512, 3512)
WARM = {(bucket, width): 1000.0 + 100 * width for bucket in (4, 8) for width in (1, 4, 8)}
PER_TOKEN = {1: 0.5, 4: 0.5, 8: 1.0}


@pytest.mark.parametrize(
    ("requests", "tokens", "seeds"),
    [
        (8, SHORT, 6), (32, SHORT, 2), (64, SHORT, 2), (128, SHORT, 1), (8, LONG, 6), (32, LONG, 2),
        pytest.param(64, LONG, 2, marks=pytest.mark.whole), pytest.param(128, LONG, 1, marks=pytest.mark.whole),
    ],
)  # fmt: skip
def test_loads_of_short_and_long_prompts_lose_no_more_than_others(requests: int, tokens: int, seeds: int) -> None:
    """A cost that followed contexts by what rounds took lost 1 to 5 % in half of these cases."""
    asked = WIDTHS, requests, (tokens,) * 4, P65, range(seeds)
    lost = regret(*asked, prompts=PROMPTS, per_token=WARM_MICROS)[tokens]
    print(f"{requests} requests: {lost:.4f}")
    assert lost <= 0.01


@pytest.mark.parametrize(("requests", "seeds"), [(1, 48), (8, 16), (32, 6), (64, 4), (128, 2)])
def test_loads_of_one_length_lose_nothing_by_it(requests: int, seeds: int) -> None:
    lost = regret(WIDTHS, requests, (SHORT, SHORT), P65, range(seeds), per_token=WARM_MICROS)[SHORT]
    assert lost <= 0.02


def test_a_token_of_context_adds_what_warm_up_measured() -> None:
    table = CostTable((1, 4, 8), (4, 8), WARM, PER_TOKEN)
    for width, per_token in PER_TOKEN.items():
        assert table.cost(4, width, 2000) == pytest.approx(table.cost(4, width) + 2000 * per_token)
    assert table.table()[4, 8] == table.cost(4, 8)


def test_a_context_costs_a_wider_round_no_less() -> None:
    table = CostTable((1, 4, 8), (4, 8), WARM, {1: 0.5, 4: 0.9, 8: 0.5})
    added = [table.cost(4, width, 1000) - table.cost(4, width) for width in (1, 4, 8)]
    assert added == pytest.approx([500.0, 700.0, 700.0])


def test_rounds_of_long_contexts_teach_what_those_of_short_ones_cost() -> None:
    """Whole rounds take 300 us more than the verify at any context."""
    table = CostTable((1, 4, 8), (4, 8), WARM, PER_TOKEN)
    for _ in range(FIRST_ROUNDS):
        table.measured(4, 8, WARM[4, 8] + 300.0 + 5000 * PER_TOKEN[8], 5000)
    assert table.cost(4, 8) == pytest.approx(WARM[4, 8] + 300.0)
    for _ in range(200):
        table.measured(4, 8, WARM[4, 8] + 400.0 + 9000 * PER_TOKEN[8], 9000)
    assert table.cost(4, 8, 1000) == pytest.approx(WARM[4, 8] + 400.0 + 1000 * PER_TOKEN[8], rel=0.01)


def test_long_contexts_ask_for_a_wider_round() -> None:
    """What they add is paid once, and a wider round brings more for it."""
    expected = {1: 1.0, 4: 2.9, 8: 4.1}
    micros = {(1, width): 1000.0 * tokens * (1.0 + 0.02 * width) for width, tokens in expected.items()}
    policy = adaptive_policy((1, 4, 8), (1,), micros, dict.fromkeys((1, 4, 8), 0.5))
    policy.join(1, None)
    assert [policy.choose(1, 1, context) for context in (0, 100_000)] == [1, 8]


def test_a_smaller_round_has_the_contexts_of_its_own_rows() -> None:
    """Five rows of 1,000 tokens each: a round of all of them takes as much longer as it brings."""
    micros = {(bucket, width): float(us) for bucket, us in ((4, 1000), (8, 1250)) for width in (1, 4)}
    policy = adaptive_policy((1, 4), (4, 8), micros, {1: 1.0, 4: 1.0})
    for uid in range(5):
        policy.join(uid, None)
    assert policy.fitting((4, 8), 5, 5000) == 5
    assert policy.fitting((4, 8), 5) == 5
    narrow = {**micros, (8, 1): 1400.0, (8, 4): 1400.0}
    policy = adaptive_policy((1, 4), (4, 8), narrow, {1: 1.0, 4: 1.0})
    for uid in range(5):
        policy.join(uid, None)
    assert policy.fitting((4, 8), 5) == 4
    assert policy.fitting((4, 8), 5, 50_000) == 5, "next to what contexts take, a larger bucket costs little"


class Told(FixedWidth):
    """Notes the contexts that it is told."""

    def __init__(self) -> None:
        super().__init__(4)
        self.fitted: list[int] = []
        self.chosen: list[int] = []
        self.ended: list[int] = []

    def fitting(self, buckets: Sequence[int], rows: int, context: int = 0) -> int:
        self.fitted.append(context)
        return super().fitting(buckets, rows, context)

    def choose(self, bucket: int, rows: int, context: int = 0) -> int:
        self.chosen.append(context)
        return super().choose(bucket, rows, context)

    def landed(self, bucket: int, width: int, committed: int, micros: float | None, context: int = 0) -> None:
        self.ended.append(context)


def test_the_policy_is_told_the_tokens_of_all_rows() -> None:
    rig, told = Rig(), Told()
    rig.scheduler._policy = told
    requests = [rig.scheduler.add(spec(prompt=size, tokens=20, seed=size), None, 0.0) for size in (5, 9)]
    while not all(request.first_token for request in requests):
        rig.round()
    held = sum(len(request.tokens) for request in requests)
    plan, _ = rig.round()
    assert plan.context == held
    assert told.fitted[-1] == told.chosen[-1] == told.ended[-1] == held
