"""The race through HTTP: what is asked, how answers are read, and what becomes of them."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from statistics import mean

import pytest

from tests.bench.gpu.fronts.client import Answer, ServerError, answers, chat_answers
from tests.bench.gpu.fronts.loads import OUTS, PROMPTS, TURNS, Asked, by_chance, chats, mean_out, most_tok_s, together
from tests.bench.gpu.fronts.rows import percentile, row_of, table
from tests.bench.gpu.fronts.servers import vllm_flags
from tests.bench.gpu.race.scale import FULL_SCALE
from tests.bench.gpu.rig import RigSettings
from tests.bench.gpu.shapes import PROFILES, TINY

SEED = 7
SETTINGS = RigSettings(TINY, "cpu", "float32", 4, (1, 4, 8, 16), 2048, 1 << 30)


def events(counts: Sequence[int]) -> bytes:
    """What a server streams: a line of silence, so many tokens an event, and the end."""
    told = [{"choices": [{"text": "", "token_ids": [5] * count}]} for count in counts]
    lines = [b": wait", *(b"data: " + json.dumps(one).encode() for one in told), b"data: [DONE]"]
    return b"".join(line + b"\n\n" for line in lines)


@asynccontextmanager
async def server(head: str, body: bytes, cuts: Sequence[int]) -> AsyncIterator[tuple[str, list[dict[str, object]]]]:
    """Answers every request with a body in chunks that end at the cuts."""
    asked: list[dict[str, object]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = next(line.partition(":")[2] for line in lines.split("\r\n") if line.startswith("content-length"))
        asked.append(json.loads(await reader.readexactly(int(length))))
        writer.write(f"HTTP/1.1 {head}\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        for begin, end in pairwise([0, *cuts, len(body)]):
            if begin < end:
                writer.write(f"{end - begin:x}\r\n".encode() + body[begin:end] + b"\r\n")
        writer.write(b"0\r\n\r\n")
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        yield f"127.0.0.1:{listener.sockets[0].getsockname()[1]}", asked


def test_tokens_are_counted_wherever_chunks_are_cut() -> None:
    body, source = events((1, 4, 2)), random.Random(SEED)

    async def run() -> None:
        for _ in range(20):
            cuts = sorted(source.sample(range(1, len(body)), 5))
            async with server("200 OK", body, cuts) as (address, asked):
                found = await answers(address, "raced", [Asked(0.0, [3, 4], 7, 1), Asked(0.01, [5], 7, 2)])
            assert [[count for _, count in one.arrivals] for one in found] == [[1, 4, 2]] * 2, f"seed {SEED}, {cuts}"
            assert found[1].asked_s >= 0.01
            assert {one["max_tokens"] for one in asked} == {7}
            assert sorted(str(one["prompt"]) for one in asked) == ["[3, 4]", "[5]"]

    asyncio.run(run())


def test_a_turn_of_a_chat_repeats_all_that_was_said_before() -> None:
    (turns,) = chats(1, 64, 0, length=8)

    async def run() -> list[dict[str, object]]:
        async with server("200 OK", events((1, 1)), ()) as (address, asked):
            found = await chat_answers(address, "raced", [turns])
        assert [one.token_ids for one in found] == [[5, 5]] * TURNS
        return asked

    whole = chats(1, 64, 0)[0]
    assert sum(len(turn.prompt) + turn.out for turn in whole) < FULL_SCALE.settings(1.0).context_limit, (
        "a chat has room"
    )
    said: list[int] = []
    for turn, asked in zip(turns, asyncio.run(run()), strict=True):
        said += turn.prompt
        assert asked["prompt"] == said
        said += [5, 5]


@pytest.mark.parametrize(("head", "counts"), [("503 Busy", ()), ("200 OK", (1, 2))])
def test_a_refusal_or_a_short_answer_is_no_measurement(head: str, counts: Sequence[int]) -> None:
    async def run() -> None:
        async with server(head, events(counts), ()) as (address, _):
            await answers(address, "raced", [Asked(0.0, [3], 7, 1)])

    with pytest.raises(ServerError, match=r"503 Busy|3 tokens came where 7"):
        asyncio.run(run())


def test_no_server_brings_more_than_what_was_asked_for_when_the_last_request_came() -> None:
    """So a ratio of two servers' goodput has a bound, which the one that ends in time comes near."""
    asked = by_chance(50.0, 12.0, 64, SEED)
    last_s = max(one.at_s for one in asked)
    for late_s in (0.0, 0.4, 2.0):
        told = [Answer(one.at_s, [(one.at_s + late_s, one.out)]) for one in asked]
        assert row_of("paceline", "by chance", [told])["tok_s"] <= most_tok_s(asked) + 1
    assert most_tok_s(asked) == pytest.approx(sum(one.out for one in asked) / last_s)


def test_requests_by_chance_have_the_rate_and_the_quantiles_of_the_table() -> None:
    asked = by_chance(50.0, 100.0, 64, SEED)
    assert len(asked) == pytest.approx(5000, rel=0.05)
    for lengths, quantiles in (([len(one.prompt) for one in asked], PROMPTS), ([one.out for one in asked], OUTS)):
        for step, expected in enumerate(quantiles[1:-1], 1):
            found = sorted(lengths)[len(lengths) * step // (len(quantiles) - 1)]
            assert found == pytest.approx(expected, rel=0.15, abs=4)
    assert mean(one.out for one in asked) == pytest.approx(mean_out(), rel=0.05)
    assert [one.at_s for one in asked] == sorted(one.at_s for one in asked)
    assert by_chance(50.0, 100.0, 64, SEED) == asked, "both servers get the same"


def test_each_repeat_of_a_load_has_prompts_and_acceptance_of_its_own() -> None:
    loads = [together(4, 64, draws) for draws in range(3)]
    assert len({one.seed for load in loads for one in load}) == 12
    assert len({tuple(one.prompt) for load in loads for one in load}) == 12


def test_a_row_tells_speed_first_tokens_gaps_and_what_was_good_enough() -> None:
    quick = Answer(0.0, [(0.1, 1), (0.108, 4), (0.116, 4)])
    slow = Answer(0.5, [(1.2, 1), (1.3, 2), (1.5, 3)])
    row = row_of("paceline", "2 at once", [[quick, slow]])
    assert (row["tok_s"], row["tokens_an_event"], row["answers"]) == (10, 2.5, 2)
    assert row["first_ms"] == {"p50": 700.0, "p99": 700.0}
    assert row["gaps_ms"]["p99"] == 200.0
    assert row["goodput_tok_s"] == [6, 6], "nine tokens of the quick one in 1.5 s"
    shown = table([row, {**row, "system": "vllm K=7", "tok_s": 5}])
    assert "| 2 at once | paceline | 10 | 2.00 |" in shown and "| 2 at once | vllm K=7 | 5 |  |" in shown
    assert percentile([], 99) == 0.0


def test_vllm_is_told_the_profile_cut_to_k_and_keeps_its_defaults() -> None:
    flags = vllm_flags(SETTINGS, "t", "d", 7, 1 << 30)
    told = json.loads(flags[flags.index("--speculative-config") + 1])
    assert told["synthetic_acceptance_rates"] == list(PROFILES["P65"][:7])
    assert "--speculative-config" not in vllm_flags(SETTINGS, "t", "d", 0, 1 << 30)
    assert not {"--no-enable-prefix-caching", "--max-num-batched-tokens", "--enforce-eager"} & {*flags}
