"""What connections sent is looked at one after the other, a bounded piece in each turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

import h11
import pytest

from services.gateway.http.server.limits import EVENTS
from services.gateway.http.server.turns import Turns
from services.gateway.http.server.wire import Wire


async def test_everybody_has_a_turn_in_order_and_the_loop_turns_between_two() -> None:
    turns, seen = Turns(), list[tuple[str, int]]()
    looped = 0

    def noted(name: str) -> Callable[[], None]:
        return lambda: seen.append((name, looped))

    for name in "abc":
        turns.ask(noted(name))
    for _ in range(8):
        looped += 1
        await asyncio.sleep(0)
    turns.ask(noted("d"))
    await asyncio.sleep(0)
    assert [name for name, _ in seen] == ["a", "b", "c", "d"]
    times = [at for _, at in seen]
    assert times[0] < times[1] < times[2], "never two in one"


async def test_who_asks_again_in_its_turn_waits_for_the_others() -> None:
    turns, seen, left = Turns(), list[str](), count(2, -1)

    def greedy() -> None:
        seen.append("greedy")
        if next(left):
            turns.ask(greedy)

    turns.ask(greedy)
    turns.ask(lambda: seen.append("other"))
    for _ in range(9):
        await asyncio.sleep(0)
    assert seen == ["greedy", "other", "greedy", "greedy"]


async def test_a_turn_is_taken_once_and_by_nobody_before_those_that_wait() -> None:
    turns, seen = Turns(), list[str]()
    assert turns.take()
    assert not turns.take(), "it was had"
    turns.ask(lambda: seen.append(f"first {turns.take()}"))
    turns.ask(lambda: seen.append(f"second {turns.take()}"))
    await asyncio.sleep(0)
    assert not turns.take(), "the second waits"
    for _ in range(3):
        await asyncio.sleep(0)
    assert seen == ["first False", "second False"]
    assert turns.take()


async def test_one_that_fails_takes_no_turn_of_others() -> None:
    turns, seen = Turns(), list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: seen.append(str(context["exception"])))

    def fails() -> None:
        raise ValueError("no")

    turns.ask(fails)
    turns.ask(lambda: seen.append("other"))
    for _ in range(4):
        await asyncio.sleep(0)
    assert seen == ["no", "other"]


@pytest.mark.parametrize("chunks", [1, EVENTS - 2, EVENTS - 1, EVENTS, 5 * EVENTS])
def test_a_turn_has_so_many_events_and_none_is_lost(chunks: int) -> None:
    wire = Wire()
    wire.receive_data(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    wire.receive_data(b"1\r\nx\r\n" * chunks + b"0\r\n\r\n")
    body, turns = b"", 0
    while True:
        wire.begin_turn()
        turns += 1
        events = 0
        while (event := wire.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            events += 1
            body += bytes(event.data) if isinstance(event, h11.Data) else b""
            if isinstance(event, h11.EndOfMessage):
                assert body == b"x" * chunks
                assert turns == -(-(chunks + 2) // EVENTS)
                return
        assert wire.over
        assert events == EVENTS
