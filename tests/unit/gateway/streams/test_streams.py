"""One client's stream at its deadline."""

import asyncio
from typing import Any, cast

import pytest

from services.common.request.sampling import FinishReason
from services.gateway.streams.calls import Call
from services.gateway.streams.events import Final
from services.gateway.streams.generation import Generation
from services.gateway.streams.journey import Totals
from services.gateway.streams.streams import Stream
from services.gateway.targets.messages import Speculation, Usage

FINAL = Final(FinishReason.DEADLINE, "", 7, 3, 1, Totals(Usage(), Speculation()), "revision", 5)


class Ended:
    """A generation that has nothing left but its final event."""

    async def next(self) -> Final:
        return FINAL

    async def expire(self) -> None:
        return


class SlowContext:
    """Takes a message at once and says so late."""

    def __init__(self) -> None:
        self.written: list[object] = []

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        return

    async def write(self, message: object) -> None:
        self.written.append(message)
        await asyncio.sleep(0.2)


async def test_a_deadline_while_the_final_event_is_written_does_not_send_it_twice() -> None:
    context = SlowContext()
    stream = Stream(cast("Any", context), cast("Any", None), cast("Any", None), Call(), lambda name, event: [event])
    stream.generation = cast("Generation", Ended())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await stream.pump()
    await stream.expire()
    assert context.written == [FINAL]
