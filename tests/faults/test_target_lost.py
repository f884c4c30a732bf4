"""F4 and F7: targets are killed, and every process is told to go. Streams continue elsewhere with the same text."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import statistics
import subprocess
import time
from collections.abc import Callable

import grpc
import pytest

from services.common.pb.paceline.v1 import inference_pb2
from tests.faults.answers import Answer, judge, migrations, request, same
from tests.faults.conftest import Size
from tests.faults.fleet import Fleet, running_fleet
from tests.faults.rest import scrape
from tests.integration.pair import PairProcesses

pytestmark = pytest.mark.asyncio(loop_scope="session")
STREAMS, TOKENS, LONGER = 16, 100, 120
PROPAGATION_S, GRACE_S = 0.1, 1.0


async def test_f4_targets_killed_under_live_streams(
    fleet: Fleet, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    expected = await fleet.expected(STREAMS, LONGER)
    gaps: list[float] = []
    freed: list[float] = []
    ready: list[float] = []
    moved = 0
    for kill in range(size(1, 30)):
        streams = await fleet.begin_all(STREAMS, LONGER)
        await asyncio.sleep(rng.uniform(0.0, 0.3))
        freed.append(await _kill_target(fleet, fleet.pairs[kill % 2]))
        answers = [await stream.task for stream in streams]
        for answer, wanted in zip(answers, expected, strict=True):
            assert same(answer, wanted)
        moved += migrations(answers)
        gaps.append(max(answer.longest_gap_s for answer in answers))
        began = time.monotonic()
        await fleet.replace_pair(kill % 2)
        ready.append(time.monotonic() - began)
    await fleet.quiet()
    assert moved > 0, "kills met live streams"
    judge(freed, 1.0)
    judge(ready, 15.0)
    report_counts("target_kills", len(gaps))
    report_counts("target_kills_streams_moved", moved)
    print(f"F4: {len(gaps)} kills, {moved} streams moved; longest pause: ", end="")
    print(f"median {statistics.median(gaps):.2f} s, max {max(gaps):.2f} s; drafter free after ", end="")
    print(f"{statistics.median(freed):.2f} s; another pair ready after {statistics.median(ready):.1f} s")


async def _kill_target(fleet: Fleet, pair: PairProcesses) -> float:
    """Seconds until the drafter has let go of a target that is killed."""
    log = pair.drafter.log
    before, killed = log.read_text().count("freed generation"), time.monotonic()
    pair.target.process.send_signal(signal.SIGKILL)
    await fleet.until(lambda: log.read_text().count("freed generation") > before, "a drafter set free")
    return time.monotonic() - killed


@pytest.mark.whole
async def test_f4_without_migration_a_killed_target_is_a_prompt_typed_error(fleet: Fleet, size: Size) -> None:
    """What came before is a prefix of the text, and the pair serves again."""
    expected = await fleet.expected(STREAMS, LONGER)
    ends: list[float] = []
    for kill in range(size(1, 10)):
        asked = [request(number, LONGER) for number in range(STREAMS)]
        for each in asked:
            each.migration = False
        streams = await fleet.begin_these(asked)
        killed = time.monotonic()
        fleet.pairs[kill % 2].target.process.send_signal(signal.SIGKILL)
        answers = [await stream.task for stream in streams]
        lost = [answer for answer in answers if answer.code is grpc.StatusCode.UNAVAILABLE]
        assert lost, "the kill met live streams"
        ends.append(max(answer.last for answer in lost) - killed)
        for answer, wanted in zip(answers, expected, strict=True):
            assert answer.tokens == wanted.tokens[: len(answer.tokens)]
            assert answer in lost or same(answer, wanted)
        await fleet.replace_pair(kill % 2)
    await fleet.quiet()
    judge(ends, 2.0)


@pytest.mark.whole
async def test_f4_streams_move_to_equal_numerics_and_say_when_there_are_none() -> None:
    """Three pairs, the middle one in float64: text that it goes on with is told in the final message and counted."""
    async with running_fleet(3, ("--slots", "16")) as fleet:
        await fleet.replace_pair(1, flags=("--dtype", "float64"))
        expected = await fleet.expected(STREAMS, LONGER)
        for victim, changes in ((0, False), (2, True)):
            streams = await fleet.begin_all(STREAMS, LONGER)
            await _kill_target(fleet, fleet.pairs[victim])
            answers = [await stream.task for stream in streams]
            assert migrations(answers) > 0, "the kill met live streams"
            told = sum(answer.final.numerics_changed for answer in answers if answer.final is not None)
            assert told == (migrations(answers) if changes else 0)
            metrics = scrape(fleet.gateway.bound(10.0)["metrics"])
            assert metrics["paceline_gateway_numerics_changes_total"] == told
            for answer, wanted in zip(answers, expected, strict=True):
                assert answer.final is not None
                assert same(answer, wanted) or (changes and answer.final.numerics_changed)
                assert len(answer.tokens) == LONGER


async def test_f7_each_process_leaves_in_turn_and_no_stream_notices(fleet: Fleet, size: Size) -> None:
    expected = await fleet.expected(STREAMS, TOKENS)
    took: list[float] = []
    for turn in range(size(1, 10)):
        for index in (0, 1) if turn else (0,):
            leaving = fleet.pairs[index]
            took.append(await _leave(fleet, [leaving.drafter.process, leaving.target.process], expected))
            assert not [*leaving.folder.glob("side-*/*.sock")], "no socket is left"
            await fleet.replace_pair(index)
        await _leave(fleet, [fleet.gateway.process], expected)
        fleet.start_gateway()
        await fleet.connect()
    await fleet.quiet()
    judge(took, PROPAGATION_S + GRACE_S + 1.0)
    print(f"F7: {len(took)} pairs left after median {statistics.median(took):.2f} s, max {max(took):.2f} s")


async def _leave(fleet: Fleet, processes: list[subprocess.Popen[bytes]], expected: list[Answer]) -> float:
    """Tells processes to go while streams run over them; seconds until the last one has gone."""
    streams = await fleet.begin_all(STREAMS, TOKENS)
    told = time.monotonic()
    for process in processes:
        process.terminate()
    codes = asyncio.gather(*(asyncio.to_thread(process.wait, 60) for process in processes))
    gone: list[float] = []
    codes.add_done_callback(lambda _: gone.append(time.monotonic()))
    for stream, wanted in zip(streams, expected, strict=True):
        assert same(await stream.task, wanted)
    assert not any(await codes)
    return gone[0] - told


LIST = {"type": "array", "items": {"enum": ["name", "value", "left over"]}, "minItems": 200}
"""Its answers are longer than all that is asked for, so that kills meet them, and have one way within each name."""


async def test_f4_ruled_streams_whose_drafts_are_mended_go_on_elsewhere(fleet: Fleet) -> None:
    """A walk that mends drafts begins anew on the other target, behind what came before."""
    asked = [_ruled(number, off=False) for number in range(STREAMS)]
    expected = await asyncio.gather(*(fleet.ask(_ruled(number, off=True)) for number in range(STREAMS)))
    streams = await fleet.begin_these(asked)
    await _kill_target(fleet, fleet.pairs[0])
    answers = [await stream.task for stream in streams]
    for answer, wanted in zip(answers, expected, strict=True):
        assert same(answer, wanted)
        assert answer.text.lstrip().startswith("[")
    assert migrations(answers) > 0, "the kill met live streams"
    accepted = sum(answer.final.speculation.accepted for answer in answers if answer.final is not None)
    assert accepted > STREAMS, "names are drafted where the drafter knows none"
    await fleet.replace_pair(0)
    await fleet.quiet()


def _ruled(number: int, *, off: bool) -> inference_pb2.GenerateRequest:
    asked = request(number, LONGER, off=off)
    asked.stopping.ignore_eos = False
    asked.structured_output.json_schema = json.dumps(LIST)
    return asked
