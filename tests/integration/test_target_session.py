"""The gateway's session with one target: what it knows at its start, and what is left of it once it is lost."""

import gc
import weakref
from pathlib import Path

from services.common.serving.channel import connect
from services.gateway.targets.opening import open_session
from services.gateway.targets.session import Session
from tests.integration.gateway_stack import harness
from tests.integration.test_gateway_faults import ready
from tests.integration.test_gateway_stream import until
from tests.support.fakes_target import FakeTarget


async def reached() -> bool:
    return True


async def test_a_session_knows_the_load_before_any_round() -> None:
    target = FakeTarget(slots=12)
    target.stall()
    address = await target.start()
    try:
        async with connect(address) as channel:
            session = await open_session(channel, "test", lambda: None, reached)
            assert session.load.slots == 12
            assert session.load.speculating
    finally:
        await target.die()


async def test_nothing_keeps_the_connection_of_a_lost_session(tmp_path: Path) -> None:
    """Only the session that was lost is watched: the link opens others meanwhile."""
    async with harness(tmp_path, [FakeTarget()]) as one:
        await ready(one, 1)
        gc.collect()
        held = weakref.WeakSet(link._session for link in one.app._pool.links)
        assert [type(each) for each in held] == [Session]
        gc.disable()
        try:
            one.targets[0].stall()
            await until(lambda: not held)
        finally:
            gc.enable()
