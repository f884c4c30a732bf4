"""Simulated bursts: every token comes, and rounds take what a GPU was measured to take."""

from itertools import pairwise

import pytest

from services.target.core.plan import Chunk, Plan
from services.target.scheduling.settings import PAUSE_S
from tests.bench.bursts import BEFORE, BESIDE, SHORT_S, SLOTS, Simulation, took_ms


@pytest.mark.parametrize(
    ("tokens", "rows", "width", "expected_ms"),
    [
        (0, 128, 8, 19.1),
        (0, 32, 8, 6.3),
        (0, 48, 8, 8.75),
        (64, 0, 1, 2.6),
        (500, 0, 1, 7.144),
        (4096, 0, 1, 50.152),
        (3968, 100, 1, 53.692),
        (1536, 128, 1, 26.0),
        (512, 32, 8, 13.444),
    ],
)
def test_a_round_takes_what_its_prompts_and_rows_do(tokens: int, rows: int, width: int, expected_ms: float) -> None:
    chunks = (Chunk(SLOTS - 1, 1, 0, (5,) * tokens, last=True),) if tokens else ()
    plan = Plan(1, width, tuple(range(rows)), rows, chunks, (), (), ())
    assert took_ms(plan) == pytest.approx(expected_ms)


def test_a_short_pause_halves_gaps_and_delays_first_tokens() -> None:
    long, short = (Simulation(SLOTS, 64, False, pause_s, beside=True) for pause_s in (PAUSE_S, SHORT_S))
    for load in (long, short):
        load.run()
        tokens = sum(count for stream in load.arrivals.values() for _, count in stream)
        assert tokens == SLOTS * 64 + BESIDE + BEFORE - 1
    assert short.figures()[3] < 60 < 100 < long.figures()[3] < 1e3 * PAUSE_S + 10
    assert short.figures()[1] > long.figures()[1]


def test_a_loop_counts_the_tokens_of_its_seconds() -> None:
    loop = Simulation(2, 64, True, PAUSE_S)
    loop.run()
    speed, first_ms, *_ = loop.figures()
    assert len(loop.began) > BEFORE + 2 and speed > 0 and first_ms > 0


LOADS = pytest.mark.parametrize(
    ("requests", "sent_s", "launch_s"),
    [(2, 0.0003, 0.003), (9, 0.0003, 0.003), (32, 0.0003, 0.003), (100, 0.0003, 0.003), (32, 0.002, 0.005),
     (64, 0.0006, 0.005), (24, 0.001, 0.001)],
)  # fmt: skip
"""The last three are of slow clients, whose next requests are not known when a round is planned."""
SHORT_LAST_PACK_MS = 10
"""Rows have a forward of their own beside a short last pack, which the rule does not know of."""


@LOADS
def test_a_row_that_decoded_before_a_burst_waits_for_one_pause(requests: int, sent_s: float, launch_s: float) -> None:
    load = Simulation(requests, 16, False, PAUSE_S, sent_s, launch_s, beside=True)
    load.run()
    assert max(max(waits) for waits in _waits_ms(load)) < 1e3 * PAUSE_S + SHORT_LAST_PACK_MS


@LOADS
def test_rows_of_a_burst_that_met_nobody_wait_once(requests: int, sent_s: float, launch_s: float) -> None:
    """For eight pauses at most, which a hundred prompts do not fill."""
    load = Simulation(requests, 16, False, PAUSE_S, sent_s, launch_s)
    load.run()
    for waits in _waits_ms(load):
        assert max(waits) < 8e3 * PAUSE_S + SHORT_LAST_PACK_MS
        assert sum(wait > 1e3 * SHORT_S for wait in waits) <= 1


@pytest.mark.parametrize("requests", [32, 64, SLOTS])
def test_fewer_than_one_gap_in_a_hundred_is_a_pause(requests: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no burst ends later than by half of the pauses, which pack after pack was interrupted for."""
    load, before = (Simulation(requests, 512, False, PAUSE_S) for _ in range(2))
    load.run()
    monkeypatch.setattr("services.target.scheduling.bursts._OWN", 4)
    before.run()
    assert load.figures()[2] < 25
    assert load.figures()[0] >= 0.999 * before.figures()[0]


def test_rows_of_a_burst_that_takes_longer_get_tokens_beside_its_later_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model whose packs take twice as long: a second of silence, then a token beside each pack."""
    monkeypatch.setattr("tests.bench.bursts.took_ms", lambda plan: took_ms(plan) * (2 if plan.chunks else 1))
    load = Simulation(SLOTS, 16, False, PAUSE_S)
    load.run()
    assert all(sum(wait > 1.5e3 * PAUSE_S for wait in waits) <= 1 for waits in _waits_ms(load))
    assert 6e3 * PAUSE_S < max(max(waits) for waits in _waits_ms(load)) < 8e3 * PAUSE_S + SHORT_LAST_PACK_MS


def _waits_ms(load: Simulation) -> list[list[float]]:
    """Between the tokens of each stream of the burst, and of that beside it."""
    streams = [stream for name, stream in load.arrivals.items() if name >= BEFORE - load.beside]
    return [[(after - before) * 1e3 for (before, _), (after, _) in pairwise(stream)] for stream in streams]
