"""Loads on a GPU lose at most 2 % to what the choice of the width must learn, the first short one included."""

import pytest

from services.target.scheduling.width.acceptance import Acceptance
from services.target.scheduling.width.costs import CostTable
from services.target.scheduling.width.width import adaptive_policy
from services.target.settings import TargetSettings
from tests.unit.target.scheduling.acceptance_profiles import P65
from tests.unit.target.scheduling.served_loads import regret

WIDTHS = TargetSettings(model="m", device="cuda").draft_widths
SHORT, LONG = 128, 512
MOST = 0.02


@pytest.mark.parametrize(("requests", "seeds"), [(1, 48), (8, 16), (32, 6), (64, 4), (128, 2)])
def test_short_loads_reach_the_speed_of_the_best_fixed_width(requests: int, seeds: int) -> None:
    """The first and the second of a fresh policy; before trials had to be paid for they lost 8 to 12 %."""
    lost = regret(WIDTHS, requests, (SHORT, SHORT), P65, range(seeds))[SHORT]
    print(f"{requests} requests: {lost:.4f}")
    assert lost <= MOST


@pytest.mark.parametrize(("requests", "seeds"), [(1, 24), (8, 8), (32, 2), (64, 1), (128, 1)])
def test_long_loads_reach_the_speed_of_the_best_fixed_width(requests: int, seeds: int) -> None:
    lost = regret(WIDTHS, requests, (LONG,), P65, range(seeds))[LONG]
    print(f"{requests} requests: {lost:.4f}")
    assert lost <= MOST


def test_a_row_promises_no_more_than_it_may_still_commit() -> None:
    acceptance = Acceptance((1, 4, 8, 16))
    acceptance.join(1, None, 10)
    *_, eight, sixteen = acceptance.expected()
    assert sixteen > eight
    acceptance.observe(1, 7, 4, False)
    plain, four, eight, sixteen = acceptance.expected()
    assert plain == 1.0 < four < eight == sixteen < 5.0
    acceptance.observe(1, 7, 3, False)
    assert acceptance.expected() == [1.0] * 4


def test_a_round_with_drafts_tells_what_a_draft_costs_at_other_widths() -> None:
    """Warm-up timed no draft. A plain round has none, so its figure stays; a bucket's own rounds count more."""
    warm = {(bucket, width): 1000.0 + 10 * width for bucket in (1, 2) for width in (1, 4, 8)}
    table = CostTable((1, 4, 8), (1, 2), warm)
    table.measured(1, 8, 1.2 * warm[1, 8])
    assert table.cost(1, 4) == pytest.approx(1.2 * warm[1, 4])
    assert table.cost(2, 8) == pytest.approx(1.2 * warm[2, 8])
    assert table.cost(1, 1) == warm[1, 1]
    table.measured(2, 8, 1.1 * warm[2, 8])
    assert table.cost(2, 4) == pytest.approx(1.1 * warm[2, 4])
    assert table.cost(1, 4) == pytest.approx(1.2 * warm[1, 4])


def test_a_slow_first_round_drives_no_width_away() -> None:
    """What a process does once is no cost of a width. In simulation one round of three times its length lost 16 %."""
    policy = adaptive_policy((1, 4, 8, 16), (1,), {(1, width): 1000.0 + 10 * width for width in (1, 4, 8, 16)})
    policy.join(1, None, 512)
    chosen = policy.choose(1, 1)
    policy.landed(1, chosen, 5, 4000.0)
    assert policy.choose(1, 1) == chosen
    policy.landed(1, chosen, 5, 4000.0)
    assert policy.choose(1, 1) != chosen, "what it goes on to cost counts"


@pytest.mark.parametrize(("rows", "width"), [(1, 8), (128, 6)])
def test_many_rows_take_a_wider_width_for_a_clear_gain_alone(rows: int, width: int) -> None:
    """Eight brings half a percent more than six. When requests end, 128 rows lose more than that with eight."""
    expected = {each: sum(0.8**draft for draft in range(each)) for each in (1, 6, 8)}
    micros = {(bucket, each): expected[each] * 300.0 for bucket in (1, 128) for each in (6, 8)}
    micros |= {(bucket, 1): 1000.0 for bucket in (1, 128)}
    micros |= {(bucket, 8): micros[bucket, 8] / 1.005 for bucket in (1, 128)}
    policy = adaptive_policy((1, 6, 8), (1, 128), micros)
    for uid in range(rows):
        policy.join(uid, None, 512)
    assert policy.choose(rows, rows) == width
