"""Streams that are compared while services are killed: a wrong text, an error and a migration are each counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from paceline import Answer, RefusedError
from tests.bench.gpu.exact.streams import Asked, Traffic, Writer, prompts

TRUTH = {Asked(number, 0.0): [number, number + 1] for number in range(4)}


class FakeWriter(Writer):
    """Answers by a function, and ends the traffic after some answers."""

    def __init__(self, answer: Callable[[Asked], Answer], streams: int) -> None:
        self._answer, self._left = answer, streams
        self.traffic = Traffic(self, TRUTH)

    async def one(self, asked: Asked, speculation: bool = True) -> Answer:
        self._left -= 1
        self.traffic.over = self._left == 0
        await asyncio.sleep(0)
        return self._answer(asked)


def right(asked: Asked) -> Answer:
    return Answer(tokens=list(TRUTH[asked]))


def cut(asked: Asked) -> Answer:
    return Answer(tokens=TRUTH[asked][:1])


def moved(asked: Asked) -> Answer:
    return Answer(tokens=list(TRUTH[asked]), migrations=1, numerics_changed=True)


def refused(asked: Asked) -> Answer:
    raise RefusedError("UNAVAILABLE", "no target")


@pytest.mark.parametrize(
    ("answer", "counted"),
    [
        (right, {}),
        (cut, {"differ": 10}),
        (moved, {"migrated": 10, "other_numerics": 10}),
        (refused, {"errors": 10}),
    ],
)
async def test_each_stream_is_judged(answer: Callable[[Asked], Answer], counted: dict[str, int]) -> None:
    writer = FakeWriter(answer, 10)
    await writer.traffic.run(3)
    assert {name: count for name, count in writer.traffic.counts.items() if count} == {"streams": 10, **counted}
    assert writer.traffic.said == ({"UNAVAILABLE: no target"} if "errors" in counted else set())


def test_prompts_are_all_different() -> None:
    assert len(set(prompts(128))) == 128
