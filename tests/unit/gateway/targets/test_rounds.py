"""A target that is asked of its rounds may be lost meanwhile: whoever asks hears none, and is not cancelled."""

import asyncio
from typing import Any

import grpc
import pytest

from services.common.serving.secret import Secret
from services.gateway.targets.rounds import proposer, rounds
from tests.support.fakes_target import FakeTarget

WAIT_S = 60.0


class Silent(FakeTarget):
    """Takes the question and gives no answer."""

    def __init__(self) -> None:
        super().__init__("p0")
        self.asked = asyncio.Event()

    async def Describe(self, request: Any, context: Any) -> Any:
        """Never ends by itself."""
        self.asked.set()
        await asyncio.Event().wait()


async def asked(target: Silent, ask: Any) -> tuple[asyncio.Task[Any], grpc.aio.Channel]:
    """The question on its way, and the connection that it goes over."""
    channel = grpc.aio.insecure_channel(await target.start())
    task = asyncio.create_task(ask(channel, Secret("x" * 16), WAIT_S)())
    await asyncio.wait_for(target.asked.wait(), WAIT_S)
    return task, channel


@pytest.mark.parametrize(("ask", "told"), [(rounds, ()), (proposer, "")], ids=["rounds", "proposer"])
async def test_a_connection_that_is_closed_meanwhile_cancels_nobody(ask: Any, told: object) -> None:
    target = Silent()
    task, channel = await asked(target, ask)
    await channel.close()
    assert await asyncio.wait_for(task, WAIT_S) == told
    await target.stop()


async def test_who_asks_can_still_be_cancelled() -> None:
    target = Silent()
    task, channel = await asked(target, rounds)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await channel.close()
    await target.stop()
