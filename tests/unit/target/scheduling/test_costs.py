"""What a round costs: never less for more work, corrected by what is served, and by contexts alike at all widths."""

from math import log

import pytest

from services.target.core.width import Tree
from services.target.scheduling.width.costs import FIRST_ROUNDS, CostTable
from tests.unit.target.scheduling.acceptance_profiles import BUCKETS, WIDTHS, micros_table


def test_costs_are_smoothed_and_rise() -> None:
    """A noisy measurement never makes more work cheaper."""
    micros = {(1, 1): 100.0, (1, 4): 90.0, (2, 1): 95.0, (2, 4): 140.0}
    table = CostTable((1, 4), (1, 2), micros)
    assert table.cost(1, 1) <= table.cost(1, 4) <= table.cost(2, 4)
    assert table.cost(1, 1) <= table.cost(2, 1) <= table.cost(2, 4)


def test_a_cost_that_was_not_measured_is_refused() -> None:
    """Every pair of bucket and width needs a measurement."""
    with pytest.raises(ValueError, match=r"\(2, 4\)"):
        CostTable((1, 4), (1, 2), {(1, 1): 1.0, (1, 4): 2.0, (2, 1): 1.5})


def test_live_rounds_correct_costs_but_an_outlier_does_not() -> None:
    """The table follows what is served; one round that was held up moves it by less than a quarter."""
    table = CostTable(WIDTHS, BUCKETS, micros_table())
    before = table.cost(4, 8)
    for outlier in (1, 1000, 1, 1000):
        table.measured(4, 8, before * outlier)
        assert table.cost(4, 8) < 4 * before
    assert table.cost(4, 8) < 1.25 * before
    for _ in range(300):
        table.measured(4, 8, before * 3)
    assert table.cost(4, 8) == pytest.approx(3 * before, rel=0.02)
    # The other widths of the bucket follow for the most part; other buckets stay.
    assert table.cost(4, 1) > 2 * micros_table()[4, 1] and table.cost(8, 8) == micros_table()[8, 8]


def served(table: CostTable, width: int, micros: float, rounds: int) -> None:
    """Rounds in a row of one request."""
    for _ in range(rounds):
        table.measured(1, width, micros)


def test_contexts_that_grow_add_the_same_time_to_all_widths() -> None:
    """Their keys and values are read once a round, however wide it is."""
    table = CostTable((1, 6, 8), (1,), {(1, 1): 500.0, (1, 6): 1000.0, (1, 8): 1200.0})
    for width, micros in ((1, 500.0), (6, 1000.0), (8, 1200.0)):
        served(table, width, micros, FIRST_ROUNDS)
    served(table, 8, 1700.0, 200)
    assert table.cost(1, 8) == pytest.approx(1700.0, rel=0.01)
    assert table.cost(1, 6) == pytest.approx(1500.0, rel=0.01)
    assert table.cost(1, 1) == pytest.approx(1000.0, rel=0.01)


def test_a_width_compared_beside_long_contexts_keeps_what_it_costs_more() -> None:
    """At contexts that add 1,000 microseconds it takes 10 % more; so much more it takes without them."""
    table = CostTable((1, 6, 8), (1,), {(1, 1): 500.0, (1, 6): 1000.0, (1, 8): 1200.0})
    served(table, 6, 1000.0, FIRST_ROUNDS)
    served(table, 6, 2000.0, 200)
    table.compared(1, 8, 6, log(1.1))
    assert table.cost(1, 8) == pytest.approx(2200.0, rel=0.01)
    served(table, 6, 1000.0, 200)
    assert table.cost(1, 6) == pytest.approx(1000.0, rel=0.02)
    assert table.cost(1, 8) == pytest.approx(1200.0, rel=0.02)


def test_what_a_run_shows_of_a_tree_holds_for_its_like() -> None:
    """Their first rounds were slow by chance, of plain ones and chains as well, which the run does not speak of."""
    micros = {(8, width): 600.0 for width in (1, 4, 8, Tree(8), Tree(16))}
    table = CostTable((1, 4, 8, Tree(8), Tree(16)), (8,), micros)
    for width, took in ((8, 1200.0), (4, 1400.0), (Tree(8), 1400.0), (Tree(16), 1400.0)):
        for _ in range(FIRST_ROUNDS):
            table.measured(8, width, took)
    chains = [table.cost(8, width) for width in (1, 4, 8)]
    table.compared(8, Tree(16), 8, log(1000.0 / 1200.0))
    assert table.cost(8, Tree(16)) == pytest.approx(1000.0 * table.cost(8, 8) / 1200.0, rel=0.01)
    assert table.cost(8, Tree(8)) < 1.21 * table.cost(8, Tree(16))
    assert [table.cost(8, width) for width in (1, 4, 8)] == chains
    assert table.live_rounds(8, Tree(8)) == FIRST_ROUNDS


def test_first_rounds_cannot_set_one_width_far_from_all_others() -> None:
    """A draft and the host take as long in all: what was measured at twice the time was something else's."""
    table = CostTable((1, 4, 8, 16), (8,), {(8, width): 600.0 for width in (1, 4, 8, 16)})
    for width, took in ((4, 1200.0), (16, 1250.0), (8, 2500.0)):
        for _ in range(FIRST_ROUNDS):
            table.measured(8, width, took)
    assert table.cost(8, 8) < 1.25 * table.cost(8, 16)


def test_contexts_that_shrink_leave_no_round_for_nothing() -> None:
    """Wide rounds were held up at first. What they then take less is more than a plain round takes."""
    table = CostTable((1, 8), (1,), {(1, 1): 500.0, (1, 8): 1000.0})
    served(table, 8, 5000.0, FIRST_ROUNDS)
    served(table, 8, 1000.0, 400)
    assert 0.0 < table.cost(1, 1) < table.cost(1, 8)
    served(table, 1, 700.0, FIRST_ROUNDS)
    assert table.cost(1, 1) == pytest.approx(700.0)
