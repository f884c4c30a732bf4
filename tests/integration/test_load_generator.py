"""The load generator against a gateway over a fake target: every request is sent once, timed and summed up."""

from pathlib import Path

import pytest

from tests.bench.load.client import Ask, LoadClient
from tests.bench.load.drive import closed_loop, conversation, open_loop
from tests.bench.load.pairs import Mode, modes
from tests.bench.load.records import Objective, Record, percentile, summary
from tests.bench.load.scenarios import Budget, Sizes, curve, mixes, replay
from tests.bench.load.workload import MIXES, Corpus, poisson_arrivals
from tests.integration.gateway_stack import harness

SMALL = Sizes(concurrencies=(1, 3), alternations=2, tokens=12, rate=200.0, arrivals=6, requests=4, turns=3)
CORPUS = Corpus(range(2, 90), 2048)


async def test_loops_and_scenarios_end_to_end(tmp_path: Path) -> None:
    """Both loops, the curve, the mixes and the conversation, without an error."""
    async with harness(tmp_path) as running, LoadClient(running.bound.grpc) as client:
        assert (await client.model()).context_limit > 0
        assert len(await client.tokenize("hello")) > 0
        asks = CORPUS.asks(MIXES["short"], 9, seed=1)
        closed = await closed_loop(client, asks, 4)
        opened = await open_loop(client, asks, poisson_arrivals(500.0, 9, seed=2))
        for records in (closed, opened):
            figures = summary(records, Objective(60.0, 60.0))
            assert (figures["requests"], figures["errors"], figures["good_share"]) == (9, 0, 1)
            assert sorted(len(record.token_ids) for record in records) == sorted(ask.tokens for ask in asks)
        wanted = [Mode("plain", "one", speculate=False), Mode("adaptive", "one")]
        rows = await curve({"one": client}, wanted, CORPUS, SMALL, Budget(600.0), print)
        assert [(row["concurrency"], row["mode"], row["errors"]) for row in rows] == [
            (count, mode, 0) for count in (1, 3) for mode in ("plain", "adaptive")
        ]
        assert {row["loop"] for row in await mixes(client, CORPUS, SMALL, Budget(600.0), print)} == {"closed", "open"}
        turns = await replay(client, CORPUS, SMALL, print)
        assert [turn["prompt_tokens"] for turn in turns] == [200, 304, 408]


async def test_refusals_are_counted_as_errors(tmp_path: Path) -> None:
    """A request that the gateway refuses is no success and no crash."""
    async with harness(tmp_path) as running, LoadClient(running.bound.grpc) as client:
        records = await closed_loop(client, [Ask((5, 6), 4), Ask((10**6,), 4)], 1)
        assert summary(records, Objective())["errors"] == 1
        assert [record.error.startswith("INVALID_ARGUMENT") for record in records].count(True) == 1
        assert len(await conversation(client, (5, 6), [(7,)], 4)) == 2


def test_figures_of_known_records() -> None:
    """Percentiles, tau and goodput by hand."""
    fast = Record(0.0, [(0.1, 1), (0.2, 3)], [1, 2, 3, 4], 0.2, rounds=1, accepted=2)
    slow = Record(0.0, [(2.0, 1), (2.5, 1)], [1, 2], 4.0, rounds=1)
    figures = summary([fast, slow, Record(0.0, ended=1.0, error="UNAVAILABLE")], Objective())
    assert (figures["tok_s"], figures["tau"], figures["errors"]) == (1.5, 2.0, 1)
    assert figures["good_share"] == pytest.approx(1 / 3, abs=1e-3) and figures["goodput_rps"] == 0.25
    assert (
        percentile([], 0.5) == 0.0 and percentile([3.0, 1.0, 2.0], 0.5) == 2.0 and percentile([1.0, 2.0], 0.99) == 2.0
    )


def test_arrivals_and_mixes_repeat_for_a_seed() -> None:
    """The same seed gives the same load; arrivals have the rate that was asked for; a prefix is shared."""
    assert poisson_arrivals(5.0, 400, 1) == poisson_arrivals(5.0, 400, 1) != poisson_arrivals(5.0, 400, 2)
    assert poisson_arrivals(5.0, 400, 1)[-1] == pytest.approx(80.0, rel=0.2)
    shared = CORPUS.asks(MIXES["shared_prefix"], 12, 3)
    assert shared == CORPUS.asks(MIXES["shared_prefix"], 12, 3)
    assert len({ask.token_ids[:256] for ask in shared}) <= 3 < len({ask.token_ids for ask in shared})


def test_every_fixed_width_has_its_own_pair() -> None:
    """Plain shares the pair of adaptive, for it needs no other."""
    assert [(mode.name, mode.pair, mode.speculate) for mode in modes((1, 4, 8))] == [
        ("plain", "adaptive", False),
        ("w4", "w4", True),
        ("w8", "w8", True),
        ("adaptive", "adaptive", True),
    ]
