"""A new revision takes over under live streams: first a tenth of the requests, then all; the old one drains, dies."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from services.common.model.files.checkpoint import Checkpoint
from tests.faults.answers import Answer, Stream, request, same
from tests.faults.fleet import Fleet, running_fleet
from tests.support.pace import within_s
from tests.support.tiny_checkpoints import write_tiny

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.whole]
STREAMS, TOKENS = 64, 24
"""At once; and of each in the canary."""
PROMPTS, REQUESTS = 48, 1_000
SHARE, POINTS = 0.10, 0.03
LONG_TOKENS, SLOWLY = 400, "plan:pace=0.05"
"""So that streams last longer than a pair takes to drain; the deadline leaves a busy machine time for all of them."""
DEADLINE_S = 400.0
ENDED_S = 2.0


@dataclass(frozen=True)
class Rollout:
    """Pairs 0 and 1 serve the old revision, 2 and 3 the new one; the fleet's gateway gives the new one a tenth."""

    fleet: Fleet
    old: str
    new: str
    expected: dict[str, list[Answer]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rollout(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rollout]:
    folder = tmp_path_factory.mktemp("checkpoints")
    models = [write_tiny(folder / name, seed=seed) for name, seed in (("old", 5), ("new", 6))]
    old, new = (_revision(pair.target) for pair in models)
    canary = ("--revisions", f"{old[:12]}={1 - SHARE},{new[:12]}={SHARE}")
    async with running_fleet(2, ("--slots", "64"), SLOWLY, models=models[0], gateway_flags=canary) as fleet:
        fleet.deadline_s = DEADLINE_S
        expected = {old: await fleet.expected(PROMPTS, LONG_TOKENS)}
        await fleet.add_pairs(models[1], 2, 3)
        async with fleet.another_gateway(("--revisions", f"{new[:12]}=1")) as stub:
            asked = [fleet.ask(request(number, LONG_TOKENS, off=True), stub=stub) for number in range(PROMPTS)]
            expected[new] = list(await asyncio.gather(*asked))
        assert all(_by(answer) == revision for revision, answers in expected.items() for answer in answers)
        yield Rollout(fleet, old, new, expected)


def _revision(folder: Path) -> str:
    return Checkpoint(folder).revision


def _by(answer: Answer) -> str:
    """The revision that gave it."""
    assert answer.final is not None, (answer.code, answer.words)
    return answer.final.model_revision


def _right(rollout: Rollout, number: int, answer: Answer) -> bool:
    """It is how the text of the revision that it names begins; half a character at its end stands for itself."""
    whole = rollout.expected[_by(answer)][number]
    begins = whole.text.startswith(answer.text.rstrip("\ufffd"))
    return answer.tokens == whole.tokens[: len(answer.tokens)] and begins


async def test_a_tenth_of_the_requests_goes_to_the_canary(
    rollout: Rollout, report_counts: Callable[[str, int], None]
) -> None:
    """Keys decide, so the share is the same in every run."""
    numbers = iter(range(REQUESTS))
    shares: Counter[str] = Counter()

    async def client() -> None:
        for number in numbers:
            asked = request(number % PROMPTS, TOKENS)
            asked.idempotency_key = f"chat-{number}"
            answer = await rollout.fleet.ask(asked)
            assert _right(rollout, number % PROMPTS, answer)
            assert len(answer.tokens) == TOKENS
            shares[_by(answer)] += 1

    await asyncio.gather(*(client() for _ in range(STREAMS)))
    print(f"rollout: {shares[rollout.new] / REQUESTS:.3f} of {REQUESTS} requests to a canary of {SHARE}")
    assert shares.total() == REQUESTS
    assert abs(shares[rollout.new] / REQUESTS - SHARE) <= POINTS
    report_counts("rollout_requests", REQUESTS)


async def test_all_go_over_while_the_old_revision_drains_and_its_last_pair_is_killed(
    rollout: Rollout, report_counts: Callable[[str, int], None]
) -> None:
    fleet = rollout.fleet
    async with fleet.another_gateway(("--revisions", f"{rollout.new[:12]}=1")) as stub:
        early = await fleet.begin_these([request(number % PROMPTS, LONG_TOKENS) for number in range(STREAMS)])
        later = await fleet.begin_these([request(number % PROMPTS, LONG_TOKENS) for number in range(STREAMS)], stub)
        fleet.pairs[0].target.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(fleet.pairs[0].target.process.wait, 60.0)
        running = [stream for stream in early if not stream.task.done()]
        killed = time.monotonic()
        fleet.pairs[1].target.process.send_signal(signal.SIGKILL)
        await _judge_early(rollout, early, running, killed, report_counts)
        for number, answer in enumerate([await stream.task for stream in later]):
            assert _by(answer) == rollout.new
            assert same(answer, rollout.expected[rollout.new][number % PROMPTS])
        await _new_alone(rollout, stub)


async def _judge_early(
    rollout: Rollout,
    early: list[Stream],
    running: list[Stream],
    killed: float,
    report_counts: Callable[[str, int], None],
) -> None:
    """Streams of the new revision go on; those of the old one have ended before the kill, or end at once in words."""
    ends, moved, bound_s = [], 0, await asyncio.to_thread(within_s, ENDED_S)
    for number, stream in enumerate(early):
        answer, wanted = await stream.task, rollout.expected
        if answer.code is grpc.StatusCode.OK:
            assert same(answer, wanted[_by(answer)][number % PROMPTS])
            moved += answer.final.usage.migrations if answer.final is not None else 0
            continue
        assert stream in running, (answer.code, answer.words, killed - answer.last, len(answer.tokens))
        assert answer.code is grpc.StatusCode.UNAVAILABLE
        assert "checkpoint" in answer.words and rollout.old[:12] in answer.words, answer.words
        assert answer.tokens == wanted[rollout.old][number % PROMPTS].tokens[: len(answer.tokens)]
        ends.append(answer.last - killed)
    assert ends, "the kill met streams of the old revision"
    print(f"rollout: of {len(early)} streams {len(ends)} ended {max(ends):.2f} s after the kill, in words")
    assert max(ends) <= bound_s
    report_counts("rollout_streams_ended_in_words", len(ends))


async def _new_alone(rollout: Rollout, stub: Any) -> None:
    """Nothing is left of the old revision: both gateways give everything to the new one."""
    asked = [(number, gateway) for number in range(PROMPTS) for gateway in (None, stub)]
    answers = await asyncio.gather(
        *(rollout.fleet.ask(request(number, TOKENS), stub=gateway) for number, gateway in asked)
    )
    for (number, _), answer in zip(asked, answers, strict=True):
        assert _by(answer) == rollout.new
        assert _right(rollout, number, answer)
